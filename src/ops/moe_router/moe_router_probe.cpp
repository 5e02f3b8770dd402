#include "ops/moe_router/moe_router.h"
#include "ops/probe.h"

namespace temper::ops {
namespace {

// Numbers of a token that differ by an eighth at least, which every dtype holds: rounding changes no choice.
Tensor apart(int64_t tokens, int64_t experts) {
  std::vector<float> values;
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t e = 0; e < experts; ++e)
      values.push_back(static_cast<float>((37 * e + 11 * token) % experts) / 8 - 4);
  return Tensor::from(values).reshape({tokens, experts});
}

}  // namespace

ProbeRun moe_router_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kExperts = 64, kTopK = 8;
  const Tensor logits = apart(kProbeTokens, kExperts).to(dtype).on(facts.device);
  const Tensor dweights = probe_values(facts, 9, {kProbeTokens, kTopK}, DType::kF32);
  return [=, ops = bind_probe<MoeRouter>(provider, {dtype, kExperts, kTopK}, facts)] {
    Tape tape;
    const Var v = tape.variable(logits);
    const MoeRouter op{{}, {}, {}, {.experts = kExperts, .top_k = kTopK, .normalize = true}};
    return probe_backward(tape, moe_router(tape, ops, v, op, false).weights, dweights, {&v});
  };
}

}  // namespace temper::ops
