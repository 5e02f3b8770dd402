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
  check_ndim(name, "keys", op.keys, 4);
  check_cached_heads(op, op.keys.dim(0));
  check_paged_sequences(name, op.sequences, op.q.dim(0), op.keys.dim(0), op.keys.dim(1));
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
