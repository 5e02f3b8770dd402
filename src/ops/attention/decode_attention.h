#pragma once
#include <vector>

#include "ops/attention/attention.h"

namespace temper::ops {

// One more token for each of several sequences, for inference: writes k and v into the sequence's cache after
// the `length` tokens that it holds, and attends to all of them and the new one. For each head h, with
// k, v of head h / (heads / kv_heads):
//   y = softmax(scale · q keysᵀ) values      over positions j ≤ length, with a window those > length - window
// Sinks are those of attention.h.
// Softmax and sums are float32. How long the sequences are stands on the device: kernels other than `eager`
// for devices leave the host out of it, so that a captured step stays right while the caches grow.
struct DecodeAttention {
  static constexpr std::string_view kName = "decode_attention", kField = "decode_attention";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    bool window = false;
    bool sinks = false;
  };

  Tensor q;             // [sequences, heads, head_dim], compact
  Tensor k, v;          // [sequences, kv_heads, head_dim]; sequences may have any stride
  Tensor keys, values;  // [sequences, capacity, kv_heads, head_dim], compact; written at `length`
  Tensor lengths;       // [sequences] int32 in [0, capacity): checked on the CPU only
  float scale = 1;      // usually 1 / sqrt(head_dim)
  int64_t window = 0;   // 0: no limit
  Tensor sinks = {};    // [heads], q's dtype or float32; undefined: none

  using Forward = Tensor(const DecodeAttention&);  // [sequences, heads, head_dim], compact
  using Backward = void();                         // there is none
  using Compose = Forward;
};

Tensor decode_attention(Bound<DecodeAttention> bound, const DecodeAttention& op);

// For kernels that the host leads: writes k and v and returns the new lengths, which it waits for.
std::vector<int32_t> append_tokens(const DecodeAttention& op);
// For kernels that have attention: that of one sequence's token, of `keys` tokens whose k and v are not in
// it.
Attention one_query(const DecodeAttention& op, int64_t sequence, int32_t keys);

}  // namespace temper::ops
