#include "ops/probe.h"
#include "ops/token_log_probs/token_log_probs.h"

namespace temper::ops {

ProbeRun token_log_probs_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor logits = probe_values(facts, 1, {kProbeTokens, kProbeVocab}, dtype, 4);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens}, DType::kF32);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kProbeTokens; ++i) ids.push_back(static_cast<int32_t>(31 * i % kProbeVocab));
  const Tensor there = Tensor::from(ids).on(facts.device);
  return [=, ops = bind_probe<TokenLogProbs>(provider, {dtype, kProbeVocab}, facts)] {
    Tape tape;
    const Var v = tape.variable(logits);
    return probe_backward(tape, token_log_probs(tape, ops, v, there).log_probs, dy, {&v});
  };
}

}  // namespace temper::ops
