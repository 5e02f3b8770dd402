#pragma once
#include <map>
#include <memory>
#include <vector>

#include "optimizers/trained_parameters.h"

namespace temper::optimizers {

// Adds up the gradients of ranks that hold the same parameters, in place: of a sharded state each rank gets
// the sums of its part. Between begin() and end() the device continues with backward, and sum_ready() asks
// for the sums of gradients that no closure of a tape will change any more. The order, from the last
// parameter to the first, as backward reaches them, is the same on all ranks, whatever is ready when.
//
// Where two stages have a parameter, end() adds what the other one's passes made of its gradient before it
// sums it: both then have the same bits.
class GradientSums {
 public:
  explicit GradientSums(const TrainedParameters& trained);
  void begin(collectives::Group& ranks);
  void sum_ready();
  void end();

 private:
  std::vector<Placement::Shared> find_partial(size_t slot) const;
  std::vector<collectives::Group*> groups() const;  // that gradients are summed in
  bool is_ready(size_t slot) const;
  // Whether the sum waits until backward has ended.
  bool is_deferred(size_t slot) const {
    return trained_.sums_by_layer(slot) || !partial_[slot].empty() || other_stage(slot) >= 0;
  }
  int other_stage(size_t slot) const;  // that has the parameter, too; -1: none
  void sum_next();
  void sum_deferred();
  void add_copies();
  void sum(size_t slot);

  const TrainedParameters& trained_;
  // By slot: parts that several tensor ranks hold, where each knows a part of the gradient.
  std::vector<std::vector<Placement::Shared>> partial_;
  // Neighbours on the tensor axis that hold the same, by their number.
  std::map<int, std::unique_ptr<collectives::Group>> neighbours_;
  collectives::Group* ranks_ = nullptr;  // between begin() and end()
  size_t left_ = 0;                      // slots whose gradients are not summed
  std::vector<bool> may_grow_;           // by slot: later closures may add to it, though none holds it now
};

}  // namespace temper::optimizers
