#include "rollout/passes/mixed_pass.h"

#include "rollout/passes/batch_input.h"

namespace temper::rollout {

MixedPass::MixedPass(const layers::Decoder& model, SequenceCache& cache, EngineObserver* observer)
    : model_(model), cache_(cache), observer_(observer), sampler_(model) {}

std::vector<SampledToken> MixedPass::run(const std::vector<ScheduledPart>& parts) {
  Tape tape(false);
  layers::BatchInput input = batch_input_of(parts);
  std::vector<Tensor> stream;
  if (observer_ != nullptr) input.stream = &stream;
  const Tensor hidden = model_.forward(tape, input, cache_.states()).value;
  computed_ += input.ids.numel();
  if (input.routers != nullptr) record_experts(parts, *input.routers);
  if (observer_ != nullptr) {
    std::vector<EngineObserver::Tokens> tokens;
    for (const ScheduledPart& part : parts)
      tokens.push_back({part.sequence->result().id, part.sequence->computed, part.tokens});
    observer_->passed(tokens, stream, hidden);
  }
  for (const ScheduledPart& part : parts) {
    part.sequence->computed += part.tokens;
    cache_.publish(*part.sequence);
  }
  const TokenSampler::Sampled sampled = sampler_.next_tokens(parts, hidden);
  if (observer_ != nullptr && !sampled.tokens.empty()) {
    std::vector<EngineObserver::Tokens> tokens;
    for (const auto& [sequence, token] : sampled.tokens)
      tokens.push_back({sequence->result().id, sequence->length() - 1, 1});
    observer_->predicted(tokens, sampled.logits);
  }
  return sampled.tokens;
}

}  // namespace temper::rollout
