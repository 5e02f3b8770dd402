#pragma once
#include <span>

#include "ops/selection.h"

namespace temper::ops {

// Attention over packed documents with grouped queries, causal or not. Values may have another width than
// queries and keys. For each document and head h:
//   y = softmax(scale · q kᵀ + mask) v      with k, v of head h / (heads / kv_heads)
// A document with Lq queries and Lk ≥ Lq keys is aligned at its end: query i sees keys j ≤ i + Lk - Lq and,
// with a window, only those with i + Lk - Lq - j < window. Where it is not causal, each query sees all keys
// of its document. Softmax and sums are float32. With sinks the softmax of head h has one more logit,
// sinks[h], which is not scaled and has no value: the weights of the keys sum to less than one (OpenAI,
// "gpt-oss-120b & gpt-oss-20b Model Card", 2025).
struct Attention {
  static constexpr std::string_view kName = "attention", kField = "attn";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    bool window = false;
    int64_t value_dim = 0;  // 0: head_dim
    bool sinks = false;
    bool causal = true;

    bool narrow_or_wide_values() const { return value_dim != 0 && value_dim != head_dim; }
  };

  Tensor q;  // [tokens, heads, head_dim]; tokens may have any stride
  Tensor k;  // [kv_tokens, kv_heads, head_dim]; tokens may have any stride
  Tensor v;  // [kv_tokens, kv_heads, value_dim]; tokens may have any stride
  // On the CPU, whatever the device: kernels are planned by the documents' lengths.
  Tensor cu_seqlens_q;  // [documents + 1] int32, from 0 to tokens, not decreasing
  Tensor cu_seqlens_k;  // [documents + 1] int32, from 0 to kv_tokens; each document at least as long as its
                        // queries
  float scale = 1;      // usually 1 / sqrt(head_dim)
  int64_t window = 0;   // 0: no limit
  Tensor sinks = {};    // [heads], q's dtype or float32; undefined: none
  bool causal = true;   // false: no window

  std::span<const int32_t> starts_q() const { return cu_seqlens_q.values<int32_t>(); }
  std::span<const int32_t> starts_k() const { return cu_seqlens_k.values<int32_t>(); }

  struct Output {
    Tensor y;    // [tokens, heads, value_dim], compact
    Tensor lse;  // float32, logs of the softmax's denominators (sinks are in them) for backward, laid out as
                 // the kernel likes; undefined unless wanted
  };
  struct Grads {
    Tensor q, k, v;  // of the inputs' shapes and dtype; tokens may have any stride, what is below is compact
    Tensor sinks = {};  // [heads] float32; undefined where there are none
  };
  using Forward = Output(const Attention&, bool want_lse);
  using Backward = Grads(const Attention&, const Output&, const Tensor& dy);  // dy compact
  using Compose = Var(Tape&, const Var& q, const Var& k, const Var& v, const Attention&, const Var& sinks);

  struct Traits {
    bool sees_all_keys = false;  // where attention is not causal
    bool operator==(const Traits&) const = default;
  };
};

// `op` carries everything but q, k, v and sinks, of which Var{} says that there are none.
Var attention(Tape& tape, Bound<Attention> bound, const Var& q, const Var& k, const Var& v, Attention op,
              const Var& sinks = {});

// What kernels say that have no sinks; nothing where none are asked for.
Refusal refuse_sinks(bool sinks);
// The same of kernels that are causal alone.
Refusal refuse_all_keys(bool causal);

}  // namespace temper::ops
