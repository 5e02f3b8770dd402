#include "ops/attention/paged_attention.h"

#include "ops/attention/composition.h"
#include "ops/checks.h"
#include "ops/op_listener.h"

namespace temper::ops {
namespace {

void check_pages(const PagedAttention& op) {
  constexpr auto name = PagedAttention::kName;
  check_ndim(name, "q", op.q, 3);
  check_float(name, "q", op.q);
  check_contiguous(name, "q", op.q, 2);
  const int64_t tokens = op.q.dim(0), dim = op.q.dim(2);
  check_ndim(name, "keys", op.keys, 4);
  const int64_t pages = op.keys.dim(0), page_tokens = op.keys.dim(1), kv_heads = op.keys.dim(2);
  if (kv_heads < 1 || op.q.dim(1) % kv_heads != 0)
    fail("[paged_attention] {} query heads are not a multiple of {} key heads", op.q.dim(1), kv_heads);
  for (const auto& [label, tensor] : {std::pair{"keys", &op.keys}, {"values", &op.values}}) {
    check_shape(name, label, *tensor, {pages, page_tokens, kv_heads, dim});
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor);
  }
  for (const auto& [label, tensor] : {std::pair{"k", &op.k}, {"v", &op.v}}) {
    check_shape(name, label, *tensor, {tokens, kv_heads, dim});
    check_dtype(name, label, *tensor, op.q.dtype());
    check_contiguous(name, label, *tensor, 2);
  }
  check_paged_sequences(name, op.sequences, tokens, pages, page_tokens);
  check_sinks(name, op.sinks, op.q);
  if (op.window < 0) fail("[paged_attention] window is {}, needs 0 (none) or more", op.window);
}

}  // namespace

Tensor compose_paged_attention(const PagedAttention& op) {
  write_pages(op.keys, op.sequences, op.k);
  write_pages(op.values, op.sequences, op.v);
  Tape tape(false);
  Attention all;
  all.cu_seqlens_q = op.sequences.starts;
  all.cu_seqlens_k = Tensor::from(op.sequences.starts_k());
  all.scale = op.scale;
  all.window = op.window;
  return compose_attention(tape, tape.constant(op.q), tape.constant(read_pages(op.keys, op.sequences)),
                           tape.constant(read_pages(op.values, op.sequences)), all, tape.constant(op.sinks))
      .value.contiguous();
}

Tensor paged_attention(Bound<PagedAttention> bound, const PagedAttention& op) {
  check_pages(op);
  const auto& kernel = *bound;
  return observed(PagedAttention::kName, Tensor(),
                  kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op));
}

}  // namespace temper::ops
