#include "mixers/attention/kv_state.h"

#include "base/error.h"

namespace temper::mixers {

KvState::KvState(int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype, Device device)
    : k_(Tensor::empty({capacity, kv_heads, head_dim}, dtype, MemoryTag::kKvCache, device)),
      v_(Tensor::empty({capacity, kv_heads, head_dim}, dtype, MemoryTag::kKvCache, device)) {}

std::pair<Tensor, Tensor> KvState::append(int64_t length, const Tensor& k, const Tensor& v) {
  const int64_t tokens = k.dim(0), capacity = k_.dim(0);
  if (length + tokens > capacity)
    fail("the KV cache holds {} tokens, {} + {} do not fit", capacity, length, tokens);
  k_.narrow(0, length, tokens).copy_from(k);
  v_.narrow(0, length, tokens).copy_from(v);
  return {k_.narrow(0, 0, length + tokens), v_.narrow(0, 0, length + tokens)};
}

void KvState::reserve(int64_t capacity, int64_t length) {
  const auto grown = [&](const Tensor& held) {
    const Tensor all =
        Tensor::empty({capacity, held.dim(1), held.dim(2)}, held.dtype(), MemoryTag::kKvCache, held.device());
    if (length > 0) all.narrow(0, 0, length).copy_from(held.narrow(0, 0, length));
    return all;
  };
  const Tensor k = grown(k_), v = grown(v_);  // both or, where memory runs out, neither
  k_ = k;
  v_ = v;
}

}  // namespace temper::mixers
