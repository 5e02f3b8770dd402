#include "ops/moe_experts/moe_experts.h"
#include "ops/probe.h"

namespace temper::ops {
namespace {

constexpr int64_t kExperts = 32, kTopK = 4, kHidden = 512, kWidth = 256;

// Four neighbouring experts for each token.
Tensor neighbours(const HardwareFacts& facts) {
  const Tensor first = probe_ints(facts, 3, kProbeTokens, kExperts).on({});
  std::vector<int32_t> ids;
  for (const int32_t id : first.values<int32_t>())
    for (int32_t j = 0; j < kTopK; ++j) ids.push_back((id + j) % kExperts);
  return Tensor::from(std::span<const int32_t>(ids), {kProbeTokens, kTopK}).on(facts.device);
}

}  // namespace

ProbeRun moe_experts_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor x = probe_values(facts, 1, {kProbeTokens, kHidden}, dtype),
               weights = probe_values(facts, 2, {kProbeTokens, kTopK}, DType::kF32);
  const Tensor gate_up = probe_values(facts, 4, {kExperts * 2 * kWidth, kHidden}, dtype, 0.1),
               down = probe_values(facts, 5, {kExperts * kHidden, kWidth}, dtype, 0.1);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kHidden}, dtype), ids = neighbours(facts);
  return [=, ops = bind_probe<MoeExperts>(provider, {dtype, kHidden, kWidth, kExperts, kTopK}, facts)] {
    Tape tape;
    const Var vx = tape.variable(x), vw = tape.variable(weights), in = tape.variable(gate_up),
              out = tape.variable(down);
    return probe_backward(tape, moe_experts(tape, ops, vx, ids, vw, in, out), dy, {&vx, &vw, &in, &out});
  };
}

}  // namespace temper::ops
