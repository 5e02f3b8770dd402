#include "ops/probe.h"
#include "ops/linear/linear.h"

namespace temper::ops {

ProbeRun linear_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(facts, 1, {kProbeTokens, kProbeHidden}, dtype);
  const Tensor weight = probe_values(facts, 2, {kProbeInner, kProbeHidden}, dtype),
               bias = probe_values(facts, 3, {kProbeInner}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeInner}, dtype);
  return [=, ops = bind_probe<Linear>(provider, {dtype, kProbeHidden, kProbeInner, true}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weight), vb = tape.variable(bias);
    return probe_backward(tape, linear(tape, ops, vx, vw, vb), dy, {&vx, &vw, &vb});
  };
}

}  // namespace temper::ops
