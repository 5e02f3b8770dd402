#include "ops/moe_router/moe_router.h"
#include "ops/probe.h"

namespace temper::ops {

ProbeRun moe_router_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kExperts = 64, kTopK = 8;
  const Tensor logits = probe_values(facts, 1, {kProbeTokens, kExperts}, dtype, 4);
  const Tensor dweights = probe_values(facts, 9, {kProbeTokens, kTopK}, DType::kF32);
  return [=, ops = bind_probe<MoeRouter>(provider, {dtype, kExperts, kTopK}, facts)] {
    Tape tape;
    const Var v = tape.variable(logits);
    const MoeRouter op{{}, {}, {}, {.experts = kExperts, .top_k = kTopK, .normalize = true}};
    return probe_backward(tape, moe_router(tape, ops, v, op, false).weights, dweights, {&v});
  };
}

}  // namespace temper::ops
