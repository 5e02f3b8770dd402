#include "ops/probe.h"
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

constexpr int64_t kNope = 128, kRope = 64, kValue = 128;

Var joined(Tape& tape, const Var& a, const Var& b) {
  const auto flat = [&](const Var& x) { return primitives::reshape(tape, x, {x.shape()[0], -1}); };
  return primitives::concat_last(tape, flat(a), flat(b));
}

}  // namespace

ProbeRun latent_rotary_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kWidth = kProbeHeads * (kNope + kRope);
  const Tensor q = probe_values(facts, 1, {kProbeTokens, kWidth}, dtype),
               k_rope = probe_values(facts, 2, {kProbeTokens, kRope}, dtype);
  LatentRotary op;
  op.heads = kProbeHeads;
  op.interleaved = true;
  op.positions = probe_ints(facts, 3, kProbeTokens, kProbeTokens);
  op.cos = probe_values(facts, 4, {kProbeTokens, kRope / 2}, DType::kF32, 0.5);
  op.sin = probe_values(facts, 5, {kProbeTokens, kRope / 2}, DType::kF32, 0.5);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kWidth + kRope}, dtype);
  return [=, ops = bind_probe<LatentRotary>(provider, {dtype, kNope + kRope, kRope, true}, facts)] {
    Tape tape;
    const Var vq = tape.variable(q), vk = tape.variable(k_rope);
    const RotatedLatent rotated = latent_rotary(tape, ops, vq, vk, op);
    return probe_backward(tape, joined(tape, rotated.q, rotated.k_rope), dy, {&vq, &vk});
  };
}

ProbeRun latent_heads_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor kv = probe_values(facts, 1, {kProbeTokens, kProbeHeads * (kNope + kValue)}, dtype),
               k_rope = probe_values(facts, 2, {kProbeTokens, kRope}, dtype);
  LatentHeads op;
  op.heads = kProbeHeads;
  op.nope_dim = kNope;
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeHeads * (kNope + kRope + kValue)}, dtype);
  return [=, ops = bind_probe<LatentHeads>(provider, {dtype, kNope, kRope, kValue}, facts)] {
    Tape tape;
    const Var vkv = tape.variable(kv), vk = tape.variable(k_rope);
    const ExpandedHeads heads = latent_heads(tape, ops, vkv, vk, op);
    return probe_backward(tape, joined(tape, heads.k, heads.v), dy, {&vkv, &vk});
  };
}

}  // namespace temper::ops
