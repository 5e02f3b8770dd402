#pragma once
#include "ops/selection.h"

namespace temper::ops {

struct ExpandedHeads {
  Var k;  // [tokens, heads, nope_dim + rope_dim]
  Var v;  // [tokens, heads, value_dim]
};

// Key and value heads of latent attention from what kv_b makes of the latent: each head's own part of its key
// and its value lie next to each other, and all heads share the rotated part.
//   k[t, h] = [kv[t, h, : nope_dim] | k_rope[t]]      v[t, h] = kv[t, h, nope_dim :]
// v is a copy, since kernels of attention want a token's heads without gaps.
struct LatentHeads {
  static constexpr std::string_view kName = "latent_heads", kField = "latent_heads";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;
  };

  Tensor kv;      // [tokens, heads · (nope_dim + value_dim)], compact
  Tensor k_rope;  // [tokens, rope_dim], rotated; tokens may have any stride
  int64_t heads = 0, nope_dim = 0;

  int64_t rope_dim() const { return k_rope.dim(1); }
  int64_t value_dim() const { return kv.dim(1) / heads - nope_dim; }

  struct Output {
    Tensor k;  // [tokens, heads, nope_dim + rope_dim], compact
    Tensor v;  // [tokens, heads, value_dim], compact
  };
  struct Grads {
    Tensor kv;      // [tokens, heads · (nope_dim + value_dim)], compact
    Tensor k_rope;  // [tokens, rope_dim], compact: sums over heads in their order, in float32, rounded once
  };
  using Forward = Output(const LatentHeads&);
  // dk and dv of the outputs' shapes: tokens may have any stride, what is below is compact. op.kv and
  // op.k_rope are undefined.
  using Backward = Grads(const LatentHeads&, const Tensor& dk, const Tensor& dv);
  using Compose = ExpandedHeads(Tape&, const Var& kv, const Var& k_rope, const LatentHeads&);
};

// `op` carries everything but kv and k_rope.
ExpandedHeads latent_heads(Tape& tape, Bound<LatentHeads> bound, const Var& kv, const Var& k_rope,
                           LatentHeads op);

}  // namespace temper::ops
