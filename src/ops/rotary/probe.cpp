#include "ops/probe.h"
#include "ops/rotary/rotary.h"

namespace temper::ops {

ProbeRun rotary_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(1, {kProbeTokens, kProbeHeads, kProbeHeadDim}, dtype);
  const Tensor positions = probe_ints(2, kProbeTokens, kProbeTokens);
  const Shape angles{kProbeTokens, kProbeHeadDim / 2};
  const Tensor cos = probe_values(3, angles, DType::kF32, 0.5),
               sin = probe_values(4, angles, DType::kF32, 0.5);
  const Tensor dy = probe_values(9, x.shape(), dtype);
  return [=, ops = bind_probe<Rotary>(provider, {dtype, kProbeHeadDim}, facts)] {
    Tape tape;
    const Var v = tape.variable(x);
    return probe_backward(tape, rotary(tape, ops, v, positions, cos, sin), dy, {&v});
  };
}

}  // namespace temper::ops
