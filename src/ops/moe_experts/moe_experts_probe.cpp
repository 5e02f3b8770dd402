#include "ops/moe_experts/moe_experts.h"
#include "ops/moe_experts/probe_ids.h"
#include "ops/probe.h"

namespace temper::ops {

ProbeRun moe_experts_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr ProbeExperts p;
  const Tensor x = probe_values(facts, 1, {kProbeTokens, p.hidden}, dtype),
               weights = probe_values(facts, 2, {kProbeTokens, p.top_k}, DType::kF32);
  const Tensor gate_up = probe_values(facts, 4, {p.experts * 2 * p.width, p.hidden}, dtype, 0.1),
               down = probe_values(facts, 5, {p.experts * p.hidden, p.width}, dtype, 0.1);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, p.hidden}, dtype), ids = p.ids(facts);
  return [=, ops = bind_probe<MoeExperts>(provider, {dtype, p.hidden, p.width, p.experts, p.top_k}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weights), in = tape.variable(gate_up),
              out = tape.variable(down);
    return probe_backward(tape, moe_experts(tape, ops, vx, ids, vw, {in, out}), dy, {&vx, &vw, &in, &out});
  };
}

}  // namespace temper::ops
