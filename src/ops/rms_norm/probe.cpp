#include "ops/probe.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::ops {

ProbeRun rms_norm_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(1, {kProbeTokens, kProbeHidden}, dtype),
               weight = probe_values(2, {kProbeHidden}, dtype);
  const Tensor dy = probe_values(9, x.shape(), dtype);
  return [=, ops = bind_probe<RmsNorm>(provider, {dtype, kProbeHidden}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weight);
    return probe_backward(tape, rms_norm(tape, ops, vx, vw, 1e-6f), dy, {&vx, &vw});
  };
}

}  // namespace temper::ops
