#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "rollout/engine.h"

namespace temper::rollout {

// An engine of a model that ranks compute together. Ranks that divide every layer (tensor) answer the same
// requests: the first of them is asked, and the others follow it. Ranks that have experts or matrices for one
// another (ModelRanks::forward_lockstep_group) answer requests of their own in passes that they make
// together; one that has nothing to compute passes a token that is not reported.
//
// All ranks make one and call round() as often as one another. Errors and deadlines are those of the groups.
class EngineOfRanks {
 public:
  // The decoder must outlive it.
  EngineOfRanks(const layers::Decoder& model, const EngineOptions& options,
                const tokenizers::Tokenizer* tokenizer);

  // What requests have in common from now on: everything that add() is not given.
  // On all ranks the same, and said while none runs.
  void set_like(Request like) { like_ = std::move(like); }

  // Whether this rank's requests are asked for here; another rank asks for them otherwise.
  bool leads() const { return tensor_ == nullptr || tensor_->rank() == 0; }
  // As Engine::add, of a rank that leads.
  int64_t add(std::vector<int32_t> prompt, int64_t max_new_tokens, uint64_t seed,
              bool skip_special_tokens = false);

  enum class Round {
    kComputed,  // a pass
    kIdle,      // no rank has something to compute, but some rank is not done
    kDone,      // all are done
    kStopped    // some rank of those that keep step has to stop: none makes another round
  };
  // `done`: this rank has no requests and will ask nothing more; `stop`: what it has asked is given up. Of a
  // rank that follows neither matters.
  Round round(bool done, bool stop = false);
  std::vector<Completion> take_finished();  // none where another rank leads

  // As Engine's, on all ranks.
  void sleep() { engine_.sleep(); }
  void wake() { engine_.wake(); }

  Engine::Counts counts() const { return engine_.counts(); }

 private:
  struct Asked {
    std::vector<int32_t> prompt;
    int64_t max_new_tokens = 0;
    uint64_t seed = 0;
    bool skip_special_tokens = false;
  };
  int64_t enqueue(const Asked& asked);
  // What a leader says before each round.
  struct Say {
    bool done = false, stop = false;
  };
  Say follow(Say own);
  void pass_nothing() const;
  static std::string written(const std::vector<Asked>& asked, Say say);
  static std::vector<Asked> read(std::string_view message, Say& say);

  const layers::Decoder& model_;
  collectives::Group* const tensor_;
  collectives::Group* const in_step_;
  Request like_;
  Engine engine_;
  std::vector<Asked> untold_;  // that the other tensor ranks do not know yet
};

}  // namespace temper::rollout
