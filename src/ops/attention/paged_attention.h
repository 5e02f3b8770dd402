#pragma once
#include "ops/paged_sequences.h"
#include "ops/selection.h"

namespace temper::ops {

// The next tokens of several sequences whose keys and values lie in pages, for inference: writes k and v into
// the sequences' pages behind the tokens that they hold, and attends to all of them and the new ones. One
// token of each sequence is a step of decoding; more are a part of a prompt that continues what is there.
// Query i of a sequence that holds `held` tokens stands at position held + i and sees the positions up to its
// own; for the rest each head's result is that of attention.h. Softmax and sums are float32.
struct PagedAttention {
  static constexpr std::string_view kName = "paged_attention", kField = "paged_attention";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    bool window = false;
    bool sinks = false;
  };

  Tensor q;             // [tokens, heads, head_dim]; tokens may have any stride
  Tensor k, v;          // [tokens, kv_heads, head_dim]; tokens may have any stride
  Tensor keys, values;  // [pages, page_tokens, kv_heads, head_dim], compact; written
  PagedSequences sequences;
  float scale = 1;     // usually 1 / sqrt(head_dim)
  int64_t window = 0;  // 0: no limit
  Tensor sinks = {};   // [heads], q's dtype or float32; undefined: none

  using Forward = Tensor(const PagedAttention&);  // [tokens, heads, head_dim], compact
  using Backward = void();                        // there is none
  using Compose = Forward;
};

Tensor paged_attention(Bound<PagedAttention> bound, const PagedAttention& op);

}  // namespace temper::ops
