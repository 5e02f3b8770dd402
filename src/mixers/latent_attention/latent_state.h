#pragma once
#include "layers/sequence_state.h"
#include "tensor/tensor.h"

namespace temper::mixers {

// What latent attention keeps of one sequence in one layer: of each token the normed latent and the rotated
// part of the keys that all heads share, next to each other. Filled front to back.
class LatentState : public layers::MixerState {
 public:
  LatentState(int64_t capacity, int64_t rank, int64_t rope_dim, DType dtype, Device device = {});

  // Writes latent [tokens, rank] and k_rope [tokens, rope_dim] behind the first `length` tokens, and returns
  // a view of everything so far, [length + tokens, rank + rope_dim].
  Tensor append(int64_t length, const Tensor& latent, const Tensor& k_rope);
  // All places, [1, capacity, rank + rope_dim]: for ops that append by themselves.
  Tensor all() const { return rows_.reshape({1, rows_.dim(0), rows_.dim(1)}); }

  void reserve(int64_t capacity, int64_t length) override;
  // What is behind is written over.
  int64_t truncate(int64_t length, int64_t) override { return length; }

 private:
  Tensor rows_;  // [capacity, rank + rope_dim]
};

}  // namespace temper::mixers
