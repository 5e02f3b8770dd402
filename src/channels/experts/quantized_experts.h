#pragma once
#include <memory>
#include <optional>

#include "channels/experts/experts.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/lora_moe_experts/lora_moe_experts.h"
#include "ops/rounded_experts/rounded_experts.h"
#include "ops/swiglu/swiglu.h"

namespace temper::channels {

// The experts of a layer where quantizers round what their matrices read: by one op (ops/rounded_experts)
// that rounds rows itself, where there is a kernel for it. Passes that observe rows, quantizers that look at
// more than a row or have factors of columns, and devices without such a kernel take products of their own
// (ops/expert_linear). The routers' weights multiply what `down` gives, as servers of quantized models have
// it.
class QuantizedExperts {
 public:
  static bool wanted(const layers::OpScope& ops, const ExpertsConfig& config);
  static void name_ops(layers::OpScope& ops, const ExpertsConfig& config);
  static bool wanted(const layers::Binding& binding, const ExpertsConfig& config);

  QuantizedExperts(const layers::Binding& binding, const ExpertsConfig& config);

  // y [tokens, hidden] of x [tokens, hidden], ids [tokens, top_k] int32 and weights [tokens, top_k] float32,
  // as ops/moe_experts has them; the matrices by expert.
  Var operator()(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, const Var& gate_up,
                 const Var& down) const;
  // The same of rows of one adapter, whose updates read what the matrices read before it is rounded, and are
  // not rounded themselves.
  struct Updates {
    ops::ExpertsUpdate<Var> gate_up, down;
  };
  Var adapted(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, const Var& gate_up,
              const Var& down, const Updates& updates) const {
    return by_products(tape, x, ids, weights, gate_up, down, updates);
  }
  // False in passes that neither round nor observe what the matrices read: ops/moe_experts will do.
  bool needed() const;
  bool repeats() const {
    const bool products = in_->repeats && out_->repeats && updates_->repeats;
    return products && (!whole_ || (*whole_)->repeats);
  }
  // Whether the tokens of this pass count for whoever observes inputs.
  bool tokens_count() const;

 private:
  Var by_products(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, const Var& gate_up,
                  const Var& down, const Updates& updates) const;
  // What an update adds to a product, [rows, out]: scale · (rows A_eᵀ) B_eᵀ, zeros between its slices.
  Var updated(Tape& tape, const Var& rows, const Tensor& ids, const ops::ExpertsUpdate<Var>& update,
              int64_t experts, int64_t out) const;

  std::shared_ptr<const quantizers::BoundQuantizer> x_, inner_;  // null: read as they are
  std::optional<ops::Bound<ops::RoundedExperts>> whole_;         // where it is used
  ops::Bound<ops::ExpertLinear> in_, out_, updates_;
  ops::Bound<ops::Swiglu> swiglu_;
};

}  // namespace temper::channels
