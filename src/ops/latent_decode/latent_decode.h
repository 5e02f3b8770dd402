#pragma once
#include "ops/paged_sequences.h"
#include "ops/selection.h"
#include "ops/weights.h"

namespace temper::ops {

// One more token for each of several sequences under latent attention, for inference, by the absorbed form
// (DeepSeek-AI, 2024, arXiv:2405.04434): the latent takes the place of keys and values, and the rows of kv_b
// that would expand it to head h, K_h [nope_dim, rank] and V_h [value_dim, rank], act on the query and on the
// result. Writes `latent` into the sequence's pages after the `length` tokens that it holds. For each head:
//   a = K_hᵀ q[: nope_dim]
//   y = V_h Σ_j softmax_j(scale · (a · cache[j, : rank] + q[nope_dim :] · cache[j, rank :])) cache[j, : rank]
// over positions j ≤ length. All is float32, rounded once at the end.
struct LatentDecode {
  static constexpr std::string_view kName = "latent_decode", kField = "latent_decode";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t heads = 0, nope_dim = 0, rope_dim = 0, value_dim = 0, rank = 0;
  };

  Tensor q;       // [sequences, heads, nope_dim + rope_dim], compact, rotated
  Tensor latent;  // [sequences, rank + rope_dim], compact: the normed latent, then the rotated shared key
  Tensor cache;   // of all sequences, [pages, page_tokens, rank + rope_dim], compact; written
  // The pages of each sequence, which gets one token.
  PagedSequences sequences = {};
  Tensor lengths;  // [sequences] int32: `sequences.held` where q is, for kernels that repeat without the host
  float scale = 1;
  Tensor weight = {};  // of kv_b, [heads · (nope_dim + value_dim), rank]; set at the front door
  // An adapter's update, which is added to the weight: update_scale · b a. Undefined: there is none.
  Tensor a = {};  // [low, rank]
  Tensor b = {};  // [heads · (nope_dim + value_dim), low]
  float update_scale = 0;

  int64_t rank() const { return weight.dim(1); }
  int64_t nope_dim() const { return q.dim(2) - (cache.dim(2) - rank()); }
  int64_t value_dim() const { return weight.dim(0) / q.dim(1) - nope_dim(); }

  using Forward = Tensor(const LatentDecode&);  // [sequences, heads, value_dim], compact
  using Backward = void();                      // there is none
  using Compose = Forward;
};

// `op` carries everything but the weight, which may be in 8 bits: what the codes mean then exists meanwhile.
Tensor latent_decode(Bound<LatentDecode> bound, const primitives::Matrix& weight, LatentDecode op);

}  // namespace temper::ops
