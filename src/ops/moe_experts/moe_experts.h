#pragma once
#include <functional>

#include "ops/selection.h"
#include "ops/weights.h"

namespace temper::ops {

// What becomes of an expert's gate and up before `down`.
struct ExpertsGate {
  // False: silu(gate) * up. True (OpenAI, gpt-oss): g sigmoid(alpha g) (u + 1), where g is gate, at most
  // `limit`, and u is up, cut to [-limit, limit].
  bool clamped = false;
  float alpha = 1.702f, limit = 7;

  bool operator==(const ExpertsGate&) const = default;
};

// The weights of a layer's experts.
struct ExpertWeights {
  primitives::Matrix gate_up, down;  // as MoeExperts has them; may be frozen and in 8 bits
  Var gate_up_bias = {};  // [experts · 2 width], x's dtype: added to gate_up's results; Var{}: none
  Var down_bias = {};     // [experts · hidden]: added to down's before the weight multiplies them
  ExpertsGate gate = {};

  bool has_biases() const { return gate_up_bias.value.defined(); }
};

// The chosen experts of each token, gated MLPs, and the weighted sum of what they give (Shazeer et al.,
// 2017):
//   y[t] = Σ_j down_e (w[t, j] · silu(gate_e x[t]) * up_e x[t])      with e = ids[t, j]
// or with another gate and biases (ExpertWeights).
// The weight is applied before `down`, so that backward needs nothing of what the experts give. Products
// accumulate in float32; each of their results is rounded once, and the sum over j, in ascending j, is
// float32. Gradients of the matrices are sums over an expert's tokens, zero where it has none.
struct MoeExperts {
  static constexpr std::string_view kName = "moe_experts", kField = "moe";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0, width = 0;         // of the stream; of one expert
    int64_t experts = 0, top_k = 0;        // top_k ≤ experts
    bool biases = false, clamped = false;  // of ExpertWeights
  };

  Tensor x;        // [tokens, hidden], compact
  Tensor ids;      // [tokens, top_k] int32 in [0, experts), on x's device; those of a token differ
  Tensor weights;  // [tokens, top_k] float32
  // By expert: gate's rows, then up's; then those of the next. [experts · 2 width, hidden] of x's dtype, or
  // in forward codes of 8 bits with a scale for each row, for kernels that read them.
  Tensor gate_up, gate_up_scales = {};
  Tensor down, down_scales = {};  // [experts · hidden, width]: the same
  int64_t experts = 0;
  Tensor gate_up_bias = {};  // [experts · 2 width], or undefined
  Tensor down_bias = {};     // [experts · hidden], or undefined
  ExpertsGate gate = {};

  int64_t tokens() const { return x.dim(0); }
  int64_t hidden() const { return x.dim(1); }
  int64_t width() const { return down.dim(1); }
  int64_t top_k() const { return ids.dim(1); }

  struct Output {
    Tensor y;  // [tokens, hidden]
    // What backward reads, of the kernel's own making; undefined unless wanted. Usually the results of
    // gate_up [tokens · top_k, 2 width] with the rows of an expert together, and where these are.
    Tensor gate_up, places;
  };
  struct Grads {
    Tensor x;                  // [tokens, hidden], x's dtype; undefined unless wanted
    Tensor weights;            // [tokens, top_k] float32; undefined unless wanted
    Tensor gate_up_bias = {};  // [experts · 2 width] float32; undefined unless wanted
    Tensor down_bias = {};     // [experts · hidden] float32; undefined unless wanted
    // With Wanted::matrices_later: adds the gradients of the matrices, to be called once. It holds what it
    // reads.
    std::function<void(const GradTarget& gate_up, const GradTarget& down)> matrices = {};
  };
  struct Wanted {
    bool x = false, weights = false, biases = false;
    bool matrices_later = false;  // both targets are then unwanted
  };
  using Forward = Output(const MoeExperts&, bool want_saved);
  // dy [tokens, hidden], compact. `op` holds the matrices, not codes.
  using Backward = Grads(const MoeExperts& op, const Output& saved, const Tensor& dy, Wanted wanted,
                         const GradTarget& gate_up, const GradTarget& down);
  using Compose = Var(Tape&, const Var& x, const Tensor& ids, const Var& weights, const ExpertWeights& of,
                      int64_t experts);

  struct Traits {
    ReadsCodes* reads_codes = nullptr;
    bool operator==(const Traits&) const = default;
  };
};

// What both ops of experts take is what they say, or an Error "[op] …". How many experts there are.
int64_t check_experts(std::string_view op, const Var& x, const Tensor& ids, const Var& weights,
                      const primitives::Matrix& gate_up, const primitives::Matrix& down);

// `down` says how many experts there are.
Var moe_experts(Tape& tape, Bound<MoeExperts> bound, const Var& x, const Tensor& ids, const Var& weights,
                const ExpertWeights& of);

// What kernels say that have silu(gate) * up without biases; nothing where no more is asked for.
Refusal refuse_other_forms(const MoeExperts::Signature& signature);

}  // namespace temper::ops
