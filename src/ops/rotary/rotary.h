#pragma once
#include <array>

#include "ops/selection.h"

namespace temper::ops {

struct RotatedHeads {
  Var q;  // [tokens, heads, head_dim]
  Var k;  // [tokens, kv_heads, head_dim]
  Var v;  // [tokens, kv_heads, head_dim], a view of qkv
};

// How the pairs of a head are divided between the three positions of a token (time, height, width), which
// pictures and videos give it: the multimodal rotary of Qwen2-VL (arXiv:2409.12191), in blocks, and of
// Qwen3-VL, interleaved. `mrope_section` and `mrope_interleaved` of config.json.
struct RotarySections {
  std::array<int32_t, 3> pairs = {};  // of each position; all 0: a token has one position
  // False: the pairs of time come first, then those of height, then those of width. True: of pairs 1, 4, 7, …
  // the first pairs[1] are height's, of pairs 2, 5, 8, … the first pairs[2] are width's, all others time's.
  bool interleaved = false;

  bool exist() const { return sum() > 0; }
  int64_t sum() const { return int64_t{pairs[0]} + pairs[1] + pairs[2]; }
  // Of the position that turns a pair: 0, 1 or 2.
  int position_of(int64_t pair) const {
    if (!interleaved) return pair < pairs[0] ? 0 : pair < pairs[0] + pairs[1] ? 1 : 2;
    const auto place = static_cast<size_t>(pair % 3);
    return place > 0 && pair < 3 * int64_t{pairs[place]} ? static_cast<int>(place) : 0;
  }
  bool operator==(const RotarySections&) const = default;
};

// Cuts a fused product into query, key and value heads, norms the query and key heads where there are weights
// for that, and rotates them by their tokens' positions:
//   n = x / sqrt(mean(x²) + eps) * (offset + weight), head by head; without weights n = x
//   y[i]         = n[i] cos[p, i] - n[i + half] sin[p, i]
//   y[i + half]  = n[i + half] cos[p, i] + n[i] sin[p, i]      for i < half, p = positions[token]
// Of a token with three positions p is that of pair i (RotarySections); three equal ones give the bits of
// one. This is the half-split layout (Su et al., 2021; as Hugging Face pairs i with i + dim/2). Interleaved,
// 2 i and 2 i + 1 are a pair. Tables of less than half a head rotate its beginning; y = n in what is behind
// that. Everything is float32, rounded once at the end.
struct Rotary {
  static constexpr std::string_view kName = "rotary_pos_emb", kField = "rotary_pos_emb";
  struct Form {
    bool interleaved = false;
    float offset = 0;  // of the weights
    RotarySections sections = {};
    bool operator==(const Form&) const = default;
  };
  struct Signature {
    DType dtype = DType::kF32;
    int64_t head_dim = 0;
    bool qk_norm = false;
    int64_t unrotated = 0;  // at the end of each head
    Form form = {};
  };
  // What a kernel says of itself: of another number of positions it is never asked. Compositions take any.
  struct Traits {
    int positions = 1;  // of a token that its signature has: 3 of kernels that know sections, and then also 1
    bool operator==(const Traits&) const = default;
  };
  static Refusal refuses(const Traits& traits, const Signature& signature);

  Tensor qkv = {};  // [tokens, (heads + 2 kv_heads) · head_dim], compact: q's heads, then k's, then v's
  int64_t heads = 0, kv_heads = 0;
  Tensor q_weight = {}, k_weight = {};  // [head_dim] each, qkv's dtype; both undefined: no norm
  float eps = 1e-6f;                    // of the norm
  // [tokens] int32, each in [0, max_positions): checked at the front door, on a device before the upload. Of
  // a form with sections also [3, tokens]: rows of any stride, whose tokens are compact.
  Tensor positions;
  Tensor cos, sin;  // [max_positions, half] float32, attention scaling included; 2 half is at most head_dim
  Form form = {};
  bool has_three_positions() const { return positions.ndim() == 2; }
  int64_t head_dim() const { return qkv.dim(1) / (heads + 2 * kv_heads); }

  struct Output {
    Tensor q;        // [tokens, heads, head_dim], compact
    Tensor k;        // [tokens, kv_heads, head_dim], compact
    Tensor inv_rms;  // [tokens, heads + kv_heads] float32: 1 / sqrt(mean(x²) + eps); undefined without norm
  };
  using Forward = Output(const Rotary&);
  // dq [tokens, heads, head_dim], dk and dv [tokens, kv_heads, head_dim]: tokens may have any stride, what is
  // below is compact. The weights' gradients sum over tokens and heads in a fixed order. Returns dqkv,
  // compact.
  using Backward = Tensor(const Rotary&, const Tensor& inv_rms, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv, const GradTarget& q_weight, const GradTarget& k_weight);
  using Compose = RotatedHeads(Tape&, const Var& qkv, const Var& q_weight, const Var& k_weight,
                               const Rotary&);
};

// `op` carries everything but qkv and the weights, which may be Var{} (no norm; eps is not read then).
RotatedHeads rotary(Tape& tape, Bound<Rotary> bound, const Var& qkv, const Var& q_weight, const Var& k_weight,
                    Rotary op);

}  // namespace temper::ops
