#include "ops/probe.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/moe_experts/probe_ids.h"

namespace temper::ops {

ProbeRun lora_moe_experts_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr ProbeExperts p;
  constexpr int64_t kRank = 16;
  const Tensor a_in = probe_values(facts, 6, {p.experts * kRank, p.hidden}, dtype, 0.1),
               b_in = probe_values(facts, 7, {p.experts * 2 * p.width, kRank}, dtype, 0.1),
               a_out = probe_values(facts, 8, {p.experts * kRank, p.width}, dtype, 0.1),
               b_out = probe_values(facts, 10, {p.experts * p.hidden, kRank}, dtype, 0.1);
  return [=, i = p.inputs(facts, dtype),
          ops = bind_probe<LoraMoeExperts>(provider, {dtype, p.hidden, p.width, p.experts, p.top_k}, facts)] {
    Tape tape;
    const Var vx = tape.variable(i.x), vw = tape.variable(i.weights), va = tape.variable(a_in),
              vb = tape.variable(b_in), wa = tape.variable(a_out), wb = tape.variable(b_out);
    const Var y = lora_moe_experts(tape, ops, vx, i.ids, vw, {tape.constant(i.gate_up), {va, {{0, vb, 2}}}},
                                   {tape.constant(i.down), {wa, {{0, wb, 2}}}});
    return probe_backward(tape, y, i.dy, {&vx, &vw, &va, &vb, &wa, &wb});
  };
}

}  // namespace temper::ops
