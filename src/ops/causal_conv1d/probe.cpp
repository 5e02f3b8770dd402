#include "ops/probe.h"
#include "ops/causal_conv1d/causal_conv1d.h"

namespace temper::ops {
namespace {

constexpr int64_t kWidth = 4;

}  // namespace

ProbeRun causal_conv1d_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Shape shape{kProbeTokens, kProbeHidden};
  const Tensor x = probe_values(facts, 1, shape, dtype),
               weight = probe_values(facts, 2, {kProbeHidden, kWidth}, dtype),
               dy = probe_values(facts, 9, shape, dtype);
  CausalConv1d op;  // two documents
  op.documents.starts =
      Tensor::from(std::vector<int32_t>{0, kProbeTokens / 4, static_cast<int32_t>(kProbeTokens)});
  return [=, ops = bind_probe<CausalConv1d>(provider, {dtype, kProbeHidden, kWidth}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weight);
    return probe_backward(tape, causal_conv1d(tape, ops, vx, vw, {}, op).y, dy, {&vx, &vw});
  };
}

ProbeRun causal_conv1d_update_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kSequences = 2;
  CausalConv1dUpdate op;
  op.x = probe_values(facts, 1, {kSequences, kProbeHidden}, dtype);
  op.weight = probe_values(facts, 2, {kProbeHidden, kWidth}, dtype);
  op.window = probe_values(facts, 3, {kSequences, kWidth - 1, kProbeHidden}, dtype);
  return [op, ops = bind_probe<CausalConv1dUpdate>(provider, {dtype, kProbeHidden, kWidth}, facts)] {
    return as_float({causal_conv1d_update(ops, op).on({})});
  };
}

}  // namespace temper::ops
