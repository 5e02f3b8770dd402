#include "ops/probe.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/moe_experts/probe_ids.h"

namespace temper::ops {

ProbeRun expert_linear_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr ProbeExperts p;
  constexpr int64_t kRows = kProbeTokens * p.top_k;
  const Tensor x = probe_values(facts, 1, {kRows, p.hidden}, dtype),
               weight = probe_values(facts, 4, {p.experts * p.width, p.hidden}, dtype, 0.1),
               dy = probe_values(facts, 9, {kRows, p.width}, dtype), ids = p.ids(facts).reshape({kRows, 1});
  return [=, ops = bind_probe<ExpertLinear>(provider, {dtype, p.hidden, p.width, p.experts}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weight);
    return probe_backward(tape, expert_linear(tape, ops, vx, ids, vw, p.experts), dy, {&vx, &vw});
  };
}

}  // namespace temper::ops
