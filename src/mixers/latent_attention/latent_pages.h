#pragma once
#include "layers/paged_states.h"

namespace temper::mixers {

// What latent attention keeps of many sequences in one layer, in pages: of each token the normed latent and
// the rotated part of the keys that all heads share, next to each other.
class LatentPages : public layers::MixerPages {
 public:
  LatentPages(const layers::PageSizes& sizes, int64_t width, DType dtype, Device device = {})
      : rows_(Tensor::empty({sizes.pages, sizes.page_tokens, width}, dtype, MemoryTag::kKvCache, device)) {}

  const Tensor& rows() const { return rows_; }  // [pages, page_tokens, rank + rope_dim]

  void grow(int64_t pages) override { rows_ = layers::with_more_rows(rows_, pages); }

 private:
  Tensor rows_;
};

}  // namespace temper::mixers
