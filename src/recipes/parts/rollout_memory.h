#pragma once
#include <optional>
#include <string>
#include <vector>

#include "rollout/engine.h"
#include "training/rollout_turn.h"

namespace temper::recipes {

// How many ranks divide the layers, and the experts, of rollouts; the others have rollouts of their own.
struct RolloutDegrees {
  int tensor = 1, expert = 1;
};

// How a run's rollouts use its device, as the recipe asks for it.
struct RolloutSettings {
  rollout::EngineOptions engine = {};  // cache_tokens: what all requests that run at once can need
  bool may_shrink = false;             // fewer cache_tokens do, where memory is short
  int64_t longest = 0;                 // tokens of a request, with its answer
  std::vector<training::UpdateState> asleep = {};
  std::optional<RolloutDegrees> degrees = {};  // absent: those of training, whose weights they use
  std::vector<std::string> stop_strings = {};  // that end answers, besides the model's stop tokens
};

// The peak memory of a rollout, without what stays of training.
struct RolloutMemory {
  MemoryPlan plan = {};  // with the requested cache
  RolloutSettings wish = {};
  int64_t page_bytes = 0;  // of the cache
  int64_t kept_bytes = 0;  // of the CPU's memory, for what sleeps

  // Tokens of cache that fit where `limit` bytes may be used: the requested number, or less where it may
  // shrink. An Error (kResources) where not even the longest request fits.
  int64_t cache_that_fits(int64_t limit, Device device) const;
  // An Error (kResources) where the CPU's memory, of which so much is free, is too small for what sleeps and
  // for copies of checkpoints.
  void check_host(int64_t copies, int64_t free) const;
  // With `tokens` tokens of cache.
  MemoryPlan with_cache(int64_t tokens) const;
  int64_t least_cache() const;  // tokens: the longest request, or all where it may not shrink
};

// Goes through a rollout on a device that only counts, with the run's engine, a chunk of a prompt and as many
// requests as run at once. `trained`: what the optimizer trains; its gradients and states are there as an
// update leaves them. Peaks of the device's pool are reset.
RolloutMemory rehearse_rollout(const layers::Decoder& model, layers::ParameterStore& trained,
                               const layers::Adapter* adapter, const RolloutSettings& wish);

// What is planned for updates and for rollouts, side by side.
std::string phases_table(const MemoryPlan& updates, const RolloutMemory& rollouts, int64_t cache_tokens);

}  // namespace temper::recipes
