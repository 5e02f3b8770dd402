#pragma once
#include "layers/paged_states.h"

namespace temper::mixers {

// Keys and values of many sequences in one layer, in pages.
class KvPages : public layers::MixerPages {
 public:
  KvPages(const layers::PageSizes& sizes, int64_t kv_heads, int64_t head_dim, DType dtype, Device device = {})
      : keys_(Tensor::empty({sizes.pages, sizes.page_tokens, kv_heads, head_dim}, dtype, MemoryTag::kKvCache,
                            device)),
        values_(Tensor::empty(keys_.shape(), dtype, MemoryTag::kKvCache, device)) {}

  const Tensor& keys() const { return keys_; }  // [pages, page_tokens, kv_heads, head_dim]
  const Tensor& values() const { return values_; }

  void grow(int64_t pages) override {
    const Tensor keys = layers::with_more_rows(keys_, pages), values = layers::with_more_rows(values_, pages);
    keys_ = keys;  // both or, where memory runs out, neither
    values_ = values;
  }

 private:
  Tensor keys_, values_;
};

}  // namespace temper::mixers
