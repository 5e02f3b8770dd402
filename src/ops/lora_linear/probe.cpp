#include "ops/probe.h"
#include "ops/lora_linear/lora_linear.h"

namespace temper::ops {

ProbeRun lora_linear_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kRank = 16;
  const Tensor x = probe_values(facts, 1, {kProbeTokens, kProbeHidden}, dtype);
  const Tensor weight = probe_values(facts, 2, {kProbeInner, kProbeHidden}, dtype);
  const Tensor a = probe_values(facts, 3, {kRank, kProbeHidden}, dtype),
               b = probe_values(facts, 4, {kProbeInner, kRank}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeInner}, dtype);
  return [=, ops = bind_probe<LoraLinear>(provider, {dtype, kProbeHidden, kProbeInner, false}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), va = tape.variable(a), vb = tape.variable(b);
    const Var y =
        lora_linear(tape, ops, vx, tape.constant(weight), {}, {{0, kProbeTokens, {}, va, {{0, vb, 2}}}});
    return probe_backward(tape, y, dy, {&vx, &va, &vb});
  };
}

}  // namespace temper::ops
