#pragma once
#include "ops/probe.h"

namespace temper::ops {

// What the probes of experts run.
struct ProbeExperts {
  int64_t experts = 32, top_k = 4, hidden = 512, width = 256;

  // Neighbouring experts for each token: [kProbeTokens, top_k] int32.
  Tensor ids(const HardwareFacts& facts) const {
    const Tensor first = probe_ints(facts, 3, kProbeTokens, experts).on({});
    std::vector<int32_t> ids;
    for (const int32_t id : first.values<int32_t>())
      for (int64_t j = 0; j < top_k; ++j) ids.push_back(static_cast<int32_t>((id + j) % experts));
    return Tensor::from(std::span<const int32_t>(ids), {kProbeTokens, top_k}).on(facts.device);
  }

  // As MoeExperts has them, and the gradient of its result.
  struct Inputs {
    Tensor x;             // [tokens, hidden]
    Tensor weights;       // [tokens, top_k] float32
    Tensor gate_up;       // [experts · 2 width, hidden]
    Tensor down;          // [experts · hidden, width]
    Tensor dy, ids = {};  // x's shape; [tokens, top_k] int32
  };
  Inputs inputs(const HardwareFacts& facts, DType dtype) const {
    return {probe_values(facts, 1, {kProbeTokens, hidden}, dtype),
            probe_values(facts, 2, {kProbeTokens, top_k}, DType::kF32),
            probe_values(facts, 4, {experts * 2 * width, hidden}, dtype, 0.1),
            probe_values(facts, 5, {experts * hidden, width}, dtype, 0.1),
            probe_values(facts, 9, {kProbeTokens, hidden}, dtype),
            ids(facts)};
  }
};

}  // namespace temper::ops
