#pragma once
#include "ops/selection.h"

namespace temper::ops {

// How a family chooses experts for a token.
struct Routing {
  int64_t experts = 0, top_k = 1;  // top_k ≤ experts
  bool sigmoid = false;            // scores are sigmoids of the logits; otherwise their softmax
  // The experts are cut into as many groups of neighbours; only those of the best groups may be chosen.
  // groups divides experts; of fewer than two experts where it is not 1: an Error.
  int64_t groups = 1, top_groups = 1;
  bool normalize = false;  // a token's weights sum to `scaling`; otherwise they are scaled scores
  float scaling = 1;

  bool operator==(const Routing&) const = default;
};

// For each token the top_k experts with the largest score + bias; of equal ones the first (Shazeer et al.,
// 2017). With groups (DeepSeek-V3, 2024) a group counts the sum of its two largest, and the top_groups
// largest groups take part. Their weights are
//   w[j] = scaling · s[e_j] / (Σ_i s[e_i] + 1e-20)      without normalize   w[j] = scaling · s[e_j]
// The bias decides on the choice alone. Everything is float32, whatever the logits are.
struct MoeRouter {
  static constexpr std::string_view kName = "moe_router", kField = "moe_router";
  struct Signature {
    DType dtype = DType::kF32;  // of the logits
    int64_t experts = 0, top_k = 0;
  };

  Tensor logits;  // [tokens, experts], compact
  Tensor bias;    // [experts] float32, or undefined
  // [tokens, top_k] int32, on the logits' device: experts that are used instead of the best, as an earlier
  // pass chose them; undefined: none.
  Tensor given;
  Routing routing;
  // [1] int32, on the logits' device: how many of the first tokens are no padding; undefined: all of them.
  // Padding gets experts and weights, but counts and sums, and their gradient, leave it out.
  Tensor counted = {};

  struct Output {
    Tensor ids;      // [tokens, top_k] int32, by descending score + bias
    Tensor weights;  // [tokens, top_k] float32
    // What people and losses want to know of all counted tokens; undefined unless wanted.
    Tensor counts;  // [experts + 1] int32: how often each was chosen; tokens with a logit that is not finite
    // [experts + 1] float32, of p = softmax(logits), or sigmoids that are divided by their sum: Σ_tokens p,
    // then Σ_tokens of the entropy -Σ p log p.
    Tensor sums;
  };
  using Forward = Output(const MoeRouter&, bool want_sums);
  // dweights [tokens, top_k] and dsums [experts + 1], whose last entry is not read, float32, compact; either
  // may be undefined. Returns dlogits, of the logits' dtype.
  using Backward = Tensor(const MoeRouter&, const Output&, const Tensor& dweights, const Tensor& dsums);
  struct Routes {
    Tensor ids;     // [tokens, top_k] int32
    Var weights;    // [tokens, top_k] float32
    Tensor counts;  // [experts + 1] int32
    Var sums;       // [experts + 1] float32
  };
  using Compose = Routes(Tape&, const Var& logits, const MoeRouter&, bool want_sums);
};

// `op` carries everything but the logits.
MoeRouter::Routes moe_router(Tape& tape, Bound<MoeRouter> bound, const Var& logits, MoeRouter op,
                             bool want_sums);

}  // namespace temper::ops
