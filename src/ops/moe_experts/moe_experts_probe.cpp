#include "ops/moe_experts/moe_experts.h"
#include "ops/moe_experts/probe_ids.h"
#include "ops/probe.h"

namespace temper::ops {

ProbeRun moe_experts_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr ProbeExperts p;
  return [i = p.inputs(facts, dtype),
          ops = bind_probe<MoeExperts>(provider, {dtype, p.hidden, p.width, p.experts, p.top_k}, facts)] {
    Tape tape;
    const Var vx = tape.variable(i.x), vw = tape.variable(i.weights), in = tape.variable(i.gate_up),
              out = tape.variable(i.down);
    return probe_backward(tape, moe_experts(tape, ops, vx, i.ids, vw, {in, out}), i.dy,
                          {&vx, &vw, &in, &out});
  };
}

}  // namespace temper::ops
