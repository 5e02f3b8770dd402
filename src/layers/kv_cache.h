#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace temper::layers {

// Keys and values of one sequence, per layer, filled front to back.
class KvCache {
 public:
  KvCache(int64_t num_layers, int64_t capacity, int64_t kv_heads, int64_t head_dim, DType dtype,
          Device device = {});

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  // Writes k, v [tokens, kv_heads, head_dim] of one layer after the first length() tokens, and returns views
  // of everything so far. advance() moves length() once all layers have appended.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& k, const Tensor& v);
  void advance(int64_t tokens) { length_ += tokens; }
  // All of one layer's places, [1, capacity, kv_heads, head_dim]: for ops that append by themselves.
  Tensor keys(int64_t layer) const { return as_sequence(k_[static_cast<size_t>(layer)]); }
  Tensor values(int64_t layer) const { return as_sequence(v_[static_cast<size_t>(layer)]); }
  void reserve(int64_t capacity);  // grows, keeping what it holds
  void truncate(int64_t length);   // forgets everything after the first `length` tokens

 private:
  static Tensor as_sequence(const Tensor& all) {
    return all.reshape({1, all.dim(0), all.dim(1), all.dim(2)});
  }

  std::vector<Tensor> k_, v_;  // each [capacity, kv_heads, head_dim]
  int64_t capacity_, length_ = 0;
};

}  // namespace temper::layers
