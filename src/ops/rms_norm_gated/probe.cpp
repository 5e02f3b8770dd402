#include "ops/probe.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"

namespace temper::ops {

ProbeRun rms_norm_gated_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeTokens, kProbeHeads, kProbeHeadDim};
  const Tensor x = probe_values(facts, 1, shape, dtype), gate = probe_values(facts, 2, shape, dtype),
               weight = probe_values(facts, 3, {kProbeHeadDim}, dtype),
               dy = probe_values(facts, 9, shape, dtype);
  return [=, ops = bind_probe<RmsNormGated>(provider, {dtype, kProbeHeadDim}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vg = tape.variable(gate), vw = tape.variable(weight);
    return probe_backward(tape, rms_norm_gated(tape, ops, vx, vg, vw, 1e-6f), dy, {&vx, &vg, &vw});
  };
}

}  // namespace temper::ops
