#include "ops/probe.h"

#include <numeric>

#include "ops/latent_decode/latent_decode.h"

namespace temper::ops {

ProbeRun latent_decode_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kSequences = 2, kPageTokens = 16, kPages = kProbeTokens / kPageTokens + 1;
  constexpr int64_t kNope = 128, kRope = 64, kValue = 128, kRank = 512,
                    kRows = kProbeHeads * (kNope + kValue);
  const Tensor weight = probe_values(facts, 4, {kRows, kRank}, dtype, 0.04);
  LatentDecode op;
  op.q = probe_values(facts, 1, {kSequences, kProbeHeads, kNope + kRope}, dtype);
  op.latent = probe_values(facts, 2, {kSequences, kRank + kRope}, dtype);
  op.cache = probe_values(facts, 3, {kSequences * kPages, kPageTokens, kRank + kRope}, dtype);
  std::vector<int32_t> pages(kSequences * kPages);
  std::iota(pages.rbegin(), pages.rend(), 0);
  op.sequences = {Tensor::from(std::vector<int32_t>{0, 1, 2}),
                  Tensor::from(std::vector<int32_t>{kProbeTokens / 3, kProbeTokens}),
                  Tensor::from(pages).reshape({kSequences, kPages})};
  op.lengths = op.sequences.held.on(facts.device, MemoryTag::kData);
  op.scale = 0.07f;
  return [=, ops = bind_probe<LatentDecode>(provider, {dtype, kProbeHeads, kNope, kRope, kValue, kRank},
                                            facts)] {
    return as_float({latent_decode(ops, Var{weight, {}}, op).on({})});
  };
}

}  // namespace temper::ops
