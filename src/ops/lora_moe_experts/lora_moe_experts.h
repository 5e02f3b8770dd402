#pragma once
#include "ops/low_rank.h"
#include "ops/moe_experts/moe_experts.h"

namespace temper::ops {

// One adapter's update of the matrices of all experts of one product. Modules that are fused in memory
// (gate|up) share what they read and may have a slice each.
template <class T>
struct ExpertsUpdate {
  using Slice = LowRankSlice<T>;  // b [experts · outputs, rank]; columns are those of one expert
  T a;                        // [experts · Σ ranks, in]; an expert's rows together, in the slices' order
  std::vector<Slice> slices;  // by ascending columns, none of which belongs to two; none: no update
};

// The matrices of one product, which may be in 8 bits, and their update.
struct AdaptedExperts {
  primitives::Matrix matrices;
  ExpertsUpdate<Var> update = {};
};

// moe_experts, in whose products each expert's matrix W_e [out, in] is joined by the adapter's update of the
// rows that a slice has (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021):
//   r W_eᵀ + scale · (r A_eᵀ) B_eᵀ
// The matrices are frozen: they have no gradient. Gradients of A and B are float32 sums over an expert's
// tokens, zero where it has none. All tokens have one adapter.
struct LoraMoeExperts {
  static constexpr std::string_view kName = "lora_moe_experts", kField = "lora_moe";
  using Signature = MoeExperts::Signature;
  using Update = ExpertsUpdate<Tensor>;

  MoeExperts experts;  // the frozen model's part
  Update gate_up;      // in = hidden; outputs of an expert: gate's, then up's, 2 width in all
  Update down;         // in = width; hidden outputs

  struct Output {
    Tensor y;  // [tokens, hidden]
    // What backward reads, of the kernel's own making; undefined unless wanted. As of MoeExperts, and of each
    // update the products with `a` [tokens · top_k, Σ ranks].
    Tensor gate_up, places, low_gate_up, low_down;
  };
  struct UpdateTargets {
    GradTarget a;
    std::vector<GradTarget> b;  // of each slice
  };
  struct Targets {
    bool x = false, weights = false;
    UpdateTargets gate_up, down;
  };
  using Forward = Output(const LoraMoeExperts&, bool want_saved);
  // dy [tokens, hidden], compact. `op` holds the matrices, not codes.
  using Backward = MoeExperts::Grads(const LoraMoeExperts& op, const Output& saved, const Tensor& dy,
                                     const Targets& targets);
  using Compose = Var(Tape&, const Var& x, const Tensor& ids, const Var& weights, int64_t experts,
                      const AdaptedExperts& gate_up, const AdaptedExperts& down);
  using Traits = MoeExperts::Traits;
};

// The matrices are frozen; either update may have no slices.
Var lora_moe_experts(Tape& tape, Bound<LoraMoeExperts> bound, const Var& x, const Tensor& ids,
                     const Var& weights, const AdaptedExperts& gate_up, const AdaptedExperts& down);

}  // namespace temper::ops
