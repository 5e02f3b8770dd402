#pragma once
#include "ops/selection.h"

namespace temper::ops {

struct RotatedLatent {
  Var q;       // [tokens, heads, head_dim]
  Var k_rope;  // [tokens, rope_dim]
};

// Rotates what latent attention (MLA; DeepSeek-AI, 2024, arXiv:2405.04434) rotates: the last rope_dim entries
// of each query head, and the part of the keys that all heads share. The rest of a query head is copied. Of a
// rotated part x, for i < half = rope_dim / 2 and p = positions[token]:
//   y[i]         = a cos[p, i] - b sin[p, i]
//   y[i + half]  = b cos[p, i] + a sin[p, i]
// with a, b = x[i], x[i + half], or x[2i], x[2i + 1] where pairs are interleaved (DeepSeek's files): what
// comes out are halves all the same. Everything is float32, rounded once at the end.
struct LatentRotary {
  static constexpr std::string_view kName = "latent_rotary", kField = "latent_rotary";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t head_dim = 0, rope_dim = 0;
    bool interleaved = false;
  };

  Tensor q;       // [tokens, heads · head_dim]; tokens may have any stride
  Tensor k_rope;  // [tokens, rope_dim]; tokens may have any stride
  int64_t heads = 0;
  bool interleaved = false;
  Tensor positions;  // [tokens] int32, each in [0, max_positions): checked at the front door, on a device
                     // before the upload
  Tensor cos, sin;   // [max_positions, rope_dim / 2] float32, attention scaling included

  int64_t head_dim() const { return q.dim(1) / heads; }
  int64_t rope_dim() const { return k_rope.dim(1); }

  struct Output {
    Tensor q;       // [tokens, heads, head_dim], compact
    Tensor k_rope;  // [tokens, rope_dim], compact
  };
  struct Grads {
    Tensor q;       // [tokens, heads · head_dim], compact
    Tensor k_rope;  // [tokens, rope_dim], compact
  };
  using Forward = Output(const LatentRotary&);
  // dq [tokens, heads, head_dim] and dk_rope [tokens, rope_dim]: tokens may have any stride, what is below is
  // compact. op.q and op.k_rope are undefined.
  using Backward = Grads(const LatentRotary&, const Tensor& dq, const Tensor& dk_rope);
  using Compose = RotatedLatent(Tape&, const Var& q, const Var& k_rope, const LatentRotary&);
};

// `op` carries everything but q and k_rope.
RotatedLatent latent_rotary(Tape& tape, Bound<LatentRotary> bound, const Var& q, const Var& k_rope,
                            LatentRotary op);

}  // namespace temper::ops
