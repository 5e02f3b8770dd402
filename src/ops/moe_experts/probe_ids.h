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
};

}  // namespace temper::ops
