#include "layers/kv_cache.h"

#include "base/error.h"

namespace temper::layers {

KvCache::KvCache(int64_t num_layers, int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype,
                 Device device)
    : capacity_(capacity) {
  for (int64_t i = 0; i < num_layers; ++i) {
    k_.push_back(Tensor::empty({capacity, kv_heads, head_dim}, dtype, MemoryTag::kKvCache, device));
    v_.push_back(Tensor::empty({capacity, kv_heads, head_dim}, dtype, MemoryTag::kKvCache, device));
  }
}

std::pair<Tensor, Tensor> KvCache::append(int64_t layer, const Tensor& k, const Tensor& v) {
  const int64_t tokens = k.dim(0);
  if (length_ + tokens > capacity_)
    fail("the KV cache holds {} tokens, {} + {} do not fit", capacity_, length_, tokens);
  const auto index = static_cast<size_t>(layer);
  k_[index].narrow(0, length_, tokens).copy_from(k);
  v_[index].narrow(0, length_, tokens).copy_from(v);
  return {k_[index].narrow(0, 0, length_ + tokens), v_[index].narrow(0, 0, length_ + tokens)};
}

void KvCache::reserve(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (std::vector<Tensor>* tensors : {&k_, &v_})
    for (Tensor& tensor : *tensors) {
      const Tensor grown = Tensor::empty({capacity, tensor.dim(1), tensor.dim(2)}, tensor.dtype(),
                                         MemoryTag::kKvCache, tensor.device());
      if (length_ > 0) grown.narrow(0, 0, length_).copy_from(tensor.narrow(0, 0, length_));
      tensor = grown;
    }
  capacity_ = capacity;
}

void KvCache::truncate(int64_t length) {
  invariant(length >= 0 && length <= length_, "a KV cache can only be cut shorter");
  length_ = length;
}

}  // namespace temper::layers
