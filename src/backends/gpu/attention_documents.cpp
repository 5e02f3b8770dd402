#include "backends/gpu/attention_documents.h"

#include <fmt/core.h>

namespace temper::backends {
namespace {

constexpr int64_t kTile = 128;  // what kernels cut queries and keys into

}  // namespace

std::vector<PackedDocument> packed_documents(const ops::Attention& op) {
  const auto q = op.starts_q(), k = op.starts_k();
  std::vector<PackedDocument> documents;
  for (size_t d = 0; d + 1 < q.size(); ++d)
    if (q[d + 1] > q[d]) documents.push_back({q[d], q[d + 1] - q[d], k[d], k[d + 1] - k[d]});
  return documents;
}

int64_t common_length(const std::vector<PackedDocument>& documents, const ops::Attention& op) {
  if (documents.empty() || op.starts_q().back() != op.starts_k().back()) return 0;
  const int64_t length = documents.front().queries;
  if (length % kTile != 0 || length * static_cast<int64_t>(documents.size()) != op.starts_q().back())
    return 0;
  for (const PackedDocument& document : documents)
    if (document.queries != length || document.keys != length || document.query != document.key) return 0;
  return length;
}

Packing packing_of(const ops::Attention& op, bool cut) {
  return {op.cu_seqlens_q, op.cu_seqlens_k, op.q.dim(1), op.k.dim(1), op.q.dim(2), op.v.dim(2), cut};
}

ops::Attention op_of(const Packing& packing) {
  ops::Attention op;
  op.cu_seqlens_q = packing.cu_seqlens_q;
  op.cu_seqlens_k = packing.cu_seqlens_k;
  return op;
}

std::string name_of(const Packing& packing) {
  return fmt::format("documents {} {} {} {} {} {} {}", packing.cu_seqlens_q.raw(), packing.cu_seqlens_k.raw(),
                     packing.heads, packing.kv_heads, packing.head_dim, packing.value_dim, packing.cut);
}

}  // namespace temper::backends
