#pragma once
#include "ops/moe_experts/moe_experts.h"
#include "quant/format.h"

namespace temper::ops {

// How the rows that experts' matrices read come back from a number format, by the arithmetic of
// ops/fake_quantize.
struct RowRounding {
  enum class Amax : uint8_t {
    kNone,     // the format finds the scales of its blocks, or nothing is rounded
    kExperts,  // of each expert, or one in all
    kRows,     // found in each row
  };

  bool rounds = false;
  quant::Format format = {};
  Amax from = Amax::kNone;
  Tensor amax = {};  // kExperts: [experts] or [1] float32, compact, where the rows are

  // Gradients are 0 beyond a given amax, and pass everywhere else.
  bool clips() const { return rounds && from == Amax::kExperts && !format.has_blocks(); }
};

// The chosen experts of each token, gated MLPs whose matrices read rounded rows (FakeQuantize), and the
// weighted sum of what they give:
//   y[t] = Σ_j w[t, j] · down_e inner_e(silu(gate_e in_e(x[t])) * up_e in_e(x[t]))     with e = ids[t, j]
// The weight is applied behind `down`, as servers of quantized models have it. Products accumulate in
// float32; each of their results, and swiglu's before it is rounded to the format, is rounded once to x's
// dtype, and the sum over j, in ascending j, is float32. The gradient of a rounding is that of FakeQuantize.
// Gradients of the matrices are sums over an expert's tokens, zero where it has none.
struct RoundedExperts {
  static constexpr std::string_view kName = "rounded_experts", kField = "rounded_experts";
  struct Signature {
    DType dtype = DType::kF32;
    int64_t hidden = 0, width = 0;      // of the stream; of one expert
    int64_t experts = 0, top_k = 0;     // top_k ≤ experts
    quant::Format in = {}, inner = {};  // of what gate_up and down read, where they are rounded
    bool operator==(const Signature&) const = default;
  };

  MoeExperts of;  // as MoeExperts has them, without codes, biases and clamped gates
  RowRounding in, inner;

  using Output = MoeExperts::Output;
  using Forward = Output(const RoundedExperts&, bool want_saved);
  // dy [tokens, hidden], compact.
  using Backward = MoeExperts::Grads(const RoundedExperts& op, const Output& saved, const Tensor& dy,
                                     MoeExperts::Wanted wanted, const GradTarget& gate_up,
                                     const GradTarget& down);
  using Compose = Var(Tape&, const Var& x, const Var& weights, const Var& gate_up, const Var& down,
                      const RoundedExperts& op);
};

// What experts have, and how what their matrices read is rounded.
struct RoundedExpertWeights {
  Var gate_up;  // [experts · 2 width, hidden] of x's dtype
  Var down;     // [experts · hidden, width], the same; it says how many experts there are
  RowRounding in = {}, inner = {};
};

// x [tokens, hidden], ids [tokens, top_k] int32, weights [tokens, top_k] float32.
Var rounded_experts(Tape& tape, Bound<RoundedExperts> bound, const Var& x, const Tensor& ids,
                    const Var& weights, const RoundedExpertWeights& of);

}  // namespace temper::ops
