#include "ops/load_balancing_loss/load_balancing_loss.h"
#include "ops/probe.h"

namespace temper::ops {

ProbeRun load_balancing_loss_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kExperts = 64, kTopK = 8;
  LoadBalancingLoss op;
  std::vector<Tensor> sums;
  for (uint64_t router = 0; router < 4; ++router) {
    op.counts.push_back(probe_ints(facts, router, kExperts + 1, kProbeTokens));
    sums.push_back(probe_values(facts, 10 + router, {kExperts + 1}, DType::kF32));
  }
  op.top_k = kTopK;
  op.inverse_tokens.set(1.f / kProbeTokens);
  const Tensor dy = probe_values(facts, 9, {1}, DType::kF32);
  return [=, ops = bind_probe<LoadBalancingLoss>(provider, {dtype, kExperts}, facts)] {
    Tape tape;
    std::vector<Var> vars;
    for (const Tensor& each : sums) vars.push_back(tape.variable(each));
    std::vector<const Var*> inputs;
    for (const Var& var : vars) inputs.push_back(&var);
    return probe_backward(tape, load_balancing_loss(tape, ops, vars, op), dy, inputs);
  };
}

}  // namespace temper::ops
