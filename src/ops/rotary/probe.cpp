#include "ops/probe.h"
#include "ops/rotary/rotary.h"
#include "primitives/primitives.h"

namespace temper::ops {

ProbeRun rotary_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kHalf = kProbeHeadDim / 2, kWidth = (kProbeHeads + 2 * kProbeKvHeads) * kProbeHeadDim;
  const Tensor qkv = probe_values(facts, 1, {kProbeTokens, kWidth}, dtype);
  const Tensor positions = probe_ints(facts, 2, kProbeTokens, kProbeTokens);
  const Tensor cos = probe_values(facts, 3, {kProbeTokens, kHalf}, DType::kF32, 0.5),
               sin = probe_values(facts, 4, {kProbeTokens, kHalf}, DType::kF32, 0.5);
  const Tensor q_weight = probe_values(facts, 5, {kProbeHeadDim}, dtype),
               k_weight = probe_values(facts, 6, {kProbeHeadDim}, dtype);
  const Tensor dy =
      probe_values(facts, 9, {kProbeTokens, (kProbeHeads + kProbeKvHeads) * kProbeHeadDim}, dtype);
  return [=, ops = bind_probe<Rotary>(provider, {dtype, kProbeHeadDim, true}, facts)] {
    Tape tape;
    const Var x = tape.variable(qkv), qw = tape.variable(q_weight), kw = tape.variable(k_weight);
    const RotatedHeads heads = rotary(
        tape, ops, x, qw, kw,
        {.heads = kProbeHeads, .kv_heads = kProbeKvHeads, .positions = positions, .cos = cos, .sin = sin});
    const auto flat = [&](const Var& y) { return primitives::reshape(tape, y, {kProbeTokens, -1}); };
    const Var y = primitives::concat_last(tape, flat(heads.q), flat(heads.k));
    return probe_backward(tape, y, dy, {&x, &qw, &kw});
  };
}

}  // namespace temper::ops
