#include "ops/probe.h"
#include "ops/dropout/dropout.h"

namespace temper::ops {

ProbeRun dropout_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(facts, 1, {kProbeTokens, kProbeHidden}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeHidden}, dtype);
  return [=, ops = bind_probe<Dropout>(provider, {dtype}, facts)] {
    Tape tape;
    const Var v = tape.variable(x);
    return probe_backward(tape, dropout(tape, ops, v, 0.1f, {1, 2, 3, 0}), dy, {&v});
  };
}

}  // namespace temper::ops
