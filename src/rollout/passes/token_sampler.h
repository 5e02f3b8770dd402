#pragma once
#include "layers/decoder.h"
#include "ops/sample/sample.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "rollout/passes/sampled_token.h"
#include "rollout/scheduling/schedule.h"

namespace temper::rollout {

// Chooses the next tokens of sequences on the model's device, and reads them: kernel by kernel, with
// repetition penalties and tokens that requests force.
class TokenSampler {
 public:
  explicit TokenSampler(const layers::Decoder& model);  // must outlive it

  struct Sampled {
    std::vector<SampledToken> tokens;
    Tensor logits;  // [tokens, vocab]; undefined where there are none
  };
  // The next token of each sequence whose tokens are all computed, after a pass over these parts. `hidden`:
  // what the pass gave, [tokens of all parts, hidden].
  Sampled next_tokens(const std::vector<ScheduledPart>& parts, const Tensor& hidden) const;

 private:
  using Sequences = std::vector<Sequence*>;
  ops::Sample choose(const Var& logits, const Sequences& sequences) const;
  Tensor seen_by(const Sequences& sequences) const;
  std::vector<float> log_probs_of(Tape& tape, const Var& logits, const Tensor& ids,
                                  const Sequences& sequences) const;

  const layers::Decoder& model_;
  ops::Bound<ops::Sample> sample_;
  ops::Bound<ops::TokenLogProbs> log_probs_;
};

}  // namespace temper::rollout
