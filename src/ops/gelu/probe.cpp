#include "ops/probe.h"
#include "ops/gelu/gelu.h"

namespace temper::ops {

ProbeRun gelu_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(facts, 1, {kProbeTokens, kProbeInner}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeInner}, dtype);
  return [=, ops = bind_probe<Gelu>(provider, {dtype, kProbeInner, GeluForm::kErf}, facts)] {
    Tape tape;
    const Var v = tape.variable(x);
    return probe_backward(tape, gelu(tape, ops, v, GeluForm::kErf), dy, {&v});
  };
}

}  // namespace temper::ops
