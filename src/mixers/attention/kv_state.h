#pragma once
#include "layers/sequence_state.h"
#include "tensor/tensor.h"

namespace temper::mixers {

// Keys and values of one sequence in one layer (KV cache), filled front to back.
class KvState : public layers::MixerState {
 public:
  KvState(int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype, Device device = {});

  // Writes k, v [tokens, kv_heads, head_dim] behind the first `length` tokens, and returns views of
  // everything so far.
  std::pair<Tensor, Tensor> append(int64_t length, const Tensor& k, const Tensor& v);
  // All places, [1, capacity, kv_heads, head_dim]: for ops that append by themselves.
  Tensor keys() const { return as_sequence(k_); }
  Tensor values() const { return as_sequence(v_); }

  void reserve(int64_t capacity, int64_t length) override;
  // What is behind is written over.
  int64_t truncate(int64_t length, int64_t) override { return length; }

 private:
  static Tensor as_sequence(const Tensor& all) {
    return all.reshape({1, all.dim(0), all.dim(1), all.dim(2)});
  }

  Tensor k_, v_;  // [capacity, kv_heads, head_dim]
};

}  // namespace temper::mixers
