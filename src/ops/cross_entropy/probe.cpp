#include "ops/probe.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::ops {

ProbeRun cross_entropy_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor hidden = probe_values(facts, 1, {kProbeTokens, kProbeHidden}, dtype);
  const Tensor weight = probe_values(facts, 2, {kProbeVocab, kProbeHidden}, dtype, 0.05);
  const Tensor targets = probe_ints({}, 3, kProbeTokens, kProbeVocab);  // on the CPU
  return [=, ops = bind_probe<CrossEntropy>(provider, {dtype, kProbeHidden, kProbeVocab}, facts)] {
    Tape tape;
    const Var vh = tape.variable(hidden), vw = tape.variable(weight);
    const Var loss = cross_entropy(tape, ops, vh, vw, targets, {1.f / kProbeTokens, 1e-3f}).loss;
    tape.backward(loss);
    return as_float({loss.value, vh.slot->take(), vw.slot->take()});
  };
}

}  // namespace temper::ops
