#include <numeric>

#include "ops/attention/attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/probe.h"

namespace temper::ops {

ProbeRun attention_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor q = probe_values(facts, 1, {kProbeTokens, kProbeHeads, kProbeHeadDim}, dtype);
  const Tensor k = probe_values(facts, 2, {kProbeTokens, kProbeKvHeads, kProbeHeadDim}, dtype);
  const Tensor v = probe_values(facts, 3, {kProbeTokens, kProbeKvHeads, kProbeHeadDim}, dtype);
  Attention op;  // two documents
  op.cu_seqlens_q = op.cu_seqlens_k =
      Tensor::from(std::vector<int32_t>{0, kProbeTokens / 4, static_cast<int32_t>(kProbeTokens)});
  op.scale = 0.125f;
  const Tensor dy = probe_values(facts, 9, q.shape(), dtype);
  return [=, ops = bind_probe<Attention>(provider, {dtype, kProbeHeads, kProbeKvHeads, kProbeHeadDim, false},
                                         facts)] {
    Tape tape;
    const Var vq = tape.variable(q), vk = tape.variable(k), vv = tape.variable(v);
    return probe_backward(tape, attention(tape, ops, vq, vk, vv, op), dy, {&vq, &vk, &vv});
  };
}

ProbeRun paged_attention_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  constexpr int64_t kPageTokens = 16, kPages = kProbeTokens / kPageTokens, kNew = kProbeTokens / 8;
  const Shape added{kNew + 1, kProbeKvHeads, kProbeHeadDim},
      pages{2 * kPages, kPageTokens, kProbeKvHeads, kProbeHeadDim};
  std::vector<int32_t> tables(2 * kPages);
  std::iota(tables.rbegin(), tables.rend(), 0);
  PagedAttention op;  // part of a prompt, and a token
  op.q = probe_values(facts, 1, {kNew + 1, kProbeHeads, kProbeHeadDim}, dtype);
  op.k = probe_values(facts, 2, added, dtype);
  op.v = probe_values(facts, 3, added, dtype);
  op.keys = probe_values(facts, 4, pages, dtype);
  op.values = probe_values(facts, 5, pages, dtype);
  op.sequences = {Tensor::from(std::vector<int32_t>{0, kNew, kNew + 1}),
                  Tensor::from(std::vector<int32_t>{kProbeTokens / 3, kProbeTokens - 1}),
                  Tensor::from(tables).reshape({2, kPages})};
  op.scale = 0.125f;
  return [op, ops = bind_probe<PagedAttention>(
                  provider, {dtype, kProbeHeads, kProbeKvHeads, kProbeHeadDim, false}, facts)] {
    return as_float({paged_attention(ops, op).on({})});
  };
}

}  // namespace temper::ops
