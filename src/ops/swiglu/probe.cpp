#include "ops/probe.h"
#include "ops/swiglu/swiglu.h"

namespace temper::ops {

ProbeRun swiglu_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor gate_up = probe_values(facts, 1, {kProbeTokens, 2 * kProbeInner}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeInner}, dtype);
  return [=, ops = bind_probe<Swiglu>(provider, {dtype, kProbeInner}, facts)] {
    Tape tape;
    const Var v = tape.variable(gate_up);
    return probe_backward(tape, swiglu(tape, ops, v), dy, {&v});
  };
}

}  // namespace temper::ops
