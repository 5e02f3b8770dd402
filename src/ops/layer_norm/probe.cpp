#include "ops/probe.h"
#include "ops/layer_norm/layer_norm.h"

namespace temper::ops {

ProbeRun layer_norm_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeTokens, kProbeHidden};
  const Tensor x = probe_values(facts, 1, shape, dtype), residual = probe_values(facts, 3, shape, dtype),
               weight = probe_values(facts, 2, {kProbeHidden}, dtype),
               bias = probe_values(facts, 4, {kProbeHidden}, dtype);
  const Tensor dsum = probe_values(facts, 8, shape, dtype), dy = probe_values(facts, 9, shape, dtype);
  return [=, ops = bind_probe<LayerNorm>(provider, {dtype, kProbeHidden}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vr = tape.variable(residual), vw = tape.variable(weight),
              vb = tape.variable(bias);
    const LayerNormedSum out = add_layer_norm(tape, ops, vx, vr, vw, vb, 1e-6f);
    out.sum.slot->add(dsum);
    return probe_backward(tape, out.y, dy, {&vx, &vr, &vw, &vb});
  };
}

}  // namespace temper::ops
