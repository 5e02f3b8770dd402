#include "ops/attention/decode_attention.h"

#include "ops/attention/composition.h"
#include "ops/checks.h"

namespace temper::ops {
namespace {

void check_caches(const DecodeAttention& op) {
  constexpr auto name = DecodeAttention::kName;
  check_ndim(name, "q", op.q, 3);
  check_float(name, "q", op.q);
  check_contiguous(name, "q", op.q);
  check_ndim(name, "keys", op.keys, 4);
  check_cached_heads(op, op.q.dim(0));
  check_lengths(name, op.lengths, op.q.dim(0), op.keys.dim(1));
}

}  // namespace

std::vector<int32_t> append_tokens(const DecodeAttention& op) {
  const Tensor on_host = op.lengths.on({});
  std::vector<int32_t> lengths;
  for (int64_t s = 0; s < on_host.numel(); ++s) {
    const int64_t length = on_host.values<int32_t>()[static_cast<size_t>(s)];
    const auto place = [&](const Tensor& cache) { return cache.narrow(0, s, 1).narrow(1, length, 1); };
    const Shape one{1, 1, op.k.dim(1), op.k.dim(2)};
    place(op.keys).copy_from(op.k.narrow(0, s, 1).contiguous().reshape(one));
    place(op.values).copy_from(op.v.narrow(0, s, 1).contiguous().reshape(one));
    lengths.push_back(static_cast<int32_t>(length + 1));
  }
  return lengths;
}

Attention one_query(const DecodeAttention& op, int64_t sequence, int32_t keys) {
  Attention one;
  one.q = op.q.narrow(0, sequence, 1);
  one.cu_seqlens_q = Tensor::from(std::vector<int32_t>{0, 1});
  one.cu_seqlens_k = Tensor::from(std::vector<int32_t>{0, keys});
  one.scale = op.scale;
  one.window = op.window;
  one.sinks = op.sinks;
  return one;
}

Tensor compose_decode_attention(const DecodeAttention& op) {
  Tape tape(false);
  std::vector<Var> parts;
  const std::vector<int32_t> lengths = append_tokens(op);
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto at = static_cast<int64_t>(s);
    const auto seen = [&](const Tensor& cache) {
      const Tensor all = cache.narrow(0, at, 1).narrow(1, 0, lengths[s]);
      return tape.constant(all.contiguous().reshape({lengths[s], cache.dim(2), cache.dim(3)}));
    };
    const Attention one = one_query(op, at, lengths[s]);
    parts.push_back(compose_attention(tape, tape.constant(one.q), seen(op.keys), seen(op.values), one,
                                      tape.constant(one.sinks)));
  }
  if (parts.size() == 1) return parts[0].value;
  const Tensor y = Tensor::empty(op.q.shape(), op.q.dtype(), MemoryTag::kActivations, op.q.device());
  for (size_t s = 0; s < parts.size(); ++s) y.narrow(0, static_cast<int64_t>(s), 1).copy_from(parts[s].value);
  return y;
}

Tensor decode_attention(Bound<DecodeAttention> bound, const DecodeAttention& op) {
  check_caches(op);
  const auto& kernel = *bound;
  return kernel.compose != nullptr ? kernel.compose(op) : kernel.forward(op);
}

}  // namespace temper::ops
