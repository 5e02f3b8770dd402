#pragma once
#include "rollout/passes/engine_observer.h"
#include "rollout/passes/token_sampler.h"

namespace temper::rollout {

// Passes over parts of prompts together with sequences that decode, launched kernel by kernel.
class MixedPass {
 public:
  // All must outlive it. `observer` may be null.
  MixedPass(const layers::Decoder& model, SequenceCache& cache, EngineObserver* observer);

  // Computes these parts; the next token of each sequence whose tokens are then all computed.
  std::vector<SampledToken> run(const std::vector<ScheduledPart>& parts);
  int64_t computed() const { return computed_; }  // tokens

 private:
  const layers::Decoder& model_;
  SequenceCache& cache_;
  EngineObserver* const observer_;
  const TokenSampler sampler_;
  int64_t computed_ = 0;
};

}  // namespace temper::rollout
