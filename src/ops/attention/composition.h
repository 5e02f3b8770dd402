#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/paged_attention.h"
#include "ops/checks.h"

namespace temper::ops {

Attention::Compose compose_attention;
PagedAttention::Compose compose_paged_attention;

// Of any of them, for q [·, heads, ·].
void check_sinks(std::string_view name, const Tensor& sinks, const Tensor& q);

// Of an op with caches [blocks, ·, kv_heads, head_dim]: its heads, tokens and caches, sinks and window.
template <class Op>
void check_cached_heads(const Op& op, int64_t blocks) {
  constexpr auto name = Op::kName;
  const int64_t kv_heads = op.keys.dim(2), dim = op.q.dim(2);
  if (kv_heads < 1 || op.q.dim(1) % kv_heads != 0)
    fail("[{}] {} query heads are not a multiple of {} key heads", name, op.q.dim(1), kv_heads);
  for (const auto& [label, tensor] : {std::pair{"keys", &op.keys}, {"values", &op.values}}) {
    check_shape(name, label, *tensor, {blocks, op.keys.dim(1), kv_heads, dim});
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor);
  }
  for (const auto& [label, tensor] : {std::pair{"k", &op.k}, {"v", &op.v}}) {
    check_shape(name, label, *tensor, {op.q.dim(0), kv_heads, dim});
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor, 2);
  }
  check_sinks(name, op.sinks, op.q);
  if (op.window < 0) fail("[{}] window is {}, needs 0 (none) or more", name, op.window);
}

}  // namespace temper::ops
