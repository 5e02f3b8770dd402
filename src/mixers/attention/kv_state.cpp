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
  for (Tensor* tensor : {&k_, &v_}) {
    const Tensor grown = Tensor::empty({capacity, tensor->dim(1), tensor->dim(2)}, tensor->dtype(),
                                       MemoryTag::kKvCache, tensor->device());
    if (length > 0) grown.narrow(0, 0, length).copy_from(tensor->narrow(0, 0, length));
    *tensor = grown;
  }
}

}  // namespace temper::mixers
