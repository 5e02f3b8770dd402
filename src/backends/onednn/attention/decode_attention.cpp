// Each sequence is a document of one query for the attention kernel.
#include "ops/attention/decode_attention.h"
#include "backends/floats.h"
#include "backends/onednn/attention/attention.h"

namespace temper::backends {
namespace {

using ops::DecodeAttention;

Tensor forward(const DecodeAttention& op) {
  const std::vector<int32_t> lengths = ops::append_tokens(op);
  std::vector<Tensor> rows;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto at = static_cast<int64_t>(s);
    const auto seen = [&](const Tensor& cache) {
      return cache.narrow(0, at, 1)
          .reshape({cache.dim(1), cache.dim(2), cache.dim(3)})
          .narrow(0, 0, lengths[s]);
    };
    ops::Attention one = ops::one_query(op, at, lengths[s]);
    one.k = seen(op.keys);
    one.v = seen(op.values);
    rows.push_back(attend(one, documents_of(one), false, true).y);
  }
  if (rows.size() == 1) return rows[0];
  const Tensor y = Tensor::empty(op.q.shape(), op.q.dtype());
  for (size_t s = 0; s < rows.size(); ++s) y.narrow(0, static_cast<int64_t>(s), 1).copy_from(rows[s]);
  return y;
}

}  // namespace

void register_onednn_decode_attention() {
  ops::kernels<DecodeAttention>().add("onednn", {.accepts = refuse_float16, .forward = forward});
}

}  // namespace temper::backends
