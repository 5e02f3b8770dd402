#include "mixers/latent_attention/latent_state.h"

#include "base/error.h"

namespace temper::mixers {

LatentState::LatentState(int64_t capacity, int64_t rank, int64_t rope_dim, DType dtype, Device device)
    : rows_(Tensor::empty({capacity, rank + rope_dim}, dtype, MemoryTag::kKvCache, device)) {}

Tensor LatentState::append(int64_t length, const Tensor& latent, const Tensor& k_rope) {
  const int64_t tokens = latent.dim(0), capacity = rows_.dim(0), rank = latent.dim(1);
  if (length + tokens > capacity)
    fail("the latent cache holds {} tokens, {} + {} do not fit", capacity, length, tokens);
  const Tensor added = rows_.narrow(0, length, tokens);
  added.narrow(1, 0, rank).copy_from(latent);
  added.narrow(1, rank, rows_.dim(1) - rank).copy_from(k_rope);
  return rows_.narrow(0, 0, length + tokens);
}

void LatentState::reserve(int64_t capacity, int64_t length) {
  const Tensor grown =
      Tensor::empty({capacity, rows_.dim(1)}, rows_.dtype(), MemoryTag::kKvCache, rows_.device());
  if (length > 0) grown.narrow(0, 0, length).copy_from(rows_.narrow(0, 0, length));
  rows_ = grown;
}

}  // namespace temper::mixers
