#include "ops/probe.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::ops {

ProbeRun rms_norm_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeTokens, kProbeHidden};
  const Tensor x = probe_values(facts, 1, shape, dtype), residual = probe_values(facts, 3, shape, dtype),
               weight = probe_values(facts, 2, {kProbeHidden}, dtype);
  const Tensor dsum = probe_values(facts, 8, shape, dtype), dy = probe_values(facts, 9, shape, dtype);
  return [=, ops = bind_probe<RmsNorm>(provider, {dtype, kProbeHidden}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vr = tape.variable(residual), vw = tape.variable(weight);
    const NormedSum out = add_rms_norm(tape, ops, vx, vr, vw, 1e-6f);
    out.sum.slot->add(dsum);
    return probe_backward(tape, out.y, dy, {&vx, &vr, &vw});
  };
}

}  // namespace temper::ops
