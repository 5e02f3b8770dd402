#pragma once
#include <map>
#include <string>

#include "exchange/sender.h"
#include "recipes/learner/learner.h"

namespace temper::recipes {

// Sends what a run trains to another process of this machine: the model's weights, or each adapter's under
// its name; of weights with quantizers what these make of them, and the scales of quantizers of values that
// pass, which that process has, too. Adapters whose base quantizers have rounded
// go behind that base, which each process that receives gets once. Every rank sends what it owns, one after
// the other. The version is the number of updates.
class WeightExchange {
 public:
  // `setup` must outlive it. All ranks call the same functions at the same time, and an Error of one is
  // thrown on all of them.
  explicit WeightExchange(const RunSetup& setup);

  bool is_on() const { return !config_.to.empty(); }
  // Before anything is trained: an Error where no process receives them, or one with another model, and where
  // memory cannot be shared.
  void check_receivers() const;
  // Whether this update's weights are to be sent, and were not.
  bool is_due(const Learner& learner) const;
  // An Error leaves the update unsent.
  void send(const Learner& learner);

 private:
  exchange::SendOptions options() const;
  // What is sent of a run in one go.
  struct WeightUpdate {
    std::string called;              // in lines of the log
    const layers::Adapter* adapter;  // null: the model
    std::string name;                // the adapter's
    std::vector<PlacedTensor> parameters;
    int64_t version;
  };
  std::vector<PlacedTensor> model_as_it_computes();
  void send(const WeightUpdate& update, bool log) const;
  void send_base(int64_t version);
  exchange::SendResult send_own(const WeightUpdate& update) const;
  void check(const WeightUpdate& update) const;

  const RunSetup& setup_;
  const ExchangeConfig& config_;
  std::vector<Placement> whole_scales_;  // of exchange::scales_of, which every rank has whole
  std::map<std::string, int64_t> sent_;  // updates, by the learner's name
  std::string has_base_;                 // the process that has the rounded base of adapters
};

}  // namespace temper::recipes
