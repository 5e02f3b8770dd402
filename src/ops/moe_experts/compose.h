#pragma once
#include <functional>
#include <vector>

#include "base/tracing/trace.h"
#include "ops/moe_experts/moe_experts.h"

// moe_experts composed of primitives, with products of the caller's.
namespace temper::ops {

// The rows that one expert computes: places in the list of all choices, token by token.
struct RowsOfExpert {
  std::vector<int32_t> choices, tokens;
};
// ids [tokens, top_k] int32. Where memory is only counted there are no ids: the experts take turns, so that
// as many as can be have rows.
std::vector<RowsOfExpert> rows_by_expert(const Tensor& ids, int64_t experts);
Var rows_of(Tape& tape, const Var& x, const std::vector<int32_t>& rows);
// What each expert that has rows makes of these, [choices, ·] in the order of all choices.
Var in_order_of_choices(Tape& tape, const Tensor& ids, int64_t experts,
                        const std::function<Var(int64_t expert, const RowsOfExpert& own)>& of_expert);
// [tokens · top_k, hidden] to [tokens, hidden].
Var sum_of_choices(Tape& tape, const Var& chosen, int64_t top_k);

// [rows, in] to [rows, out], by the matrix of one expert.
using ExpertProduct = std::function<Var(int64_t expert, const Var& rows)>;

struct ExpertProducts {
  ExpertProduct gate_up, down;
};

// As ops/moe_experts says: x [tokens, hidden], ids [tokens, top_k] int32, weights [tokens, top_k] float32. Of
// `of` the biases and the gate.
Var compose_experts(Tape& tape, const Var& x, const Tensor& ids, const Var& weights, int64_t experts,
                    const ExpertProducts& products, const ExpertWeights& of = {});

// x [rows, in], each row with the expert of ids [rows, 1] int32: [rows, out] in the same order.
Var compose_by_expert(Tape& tape, const Var& x, const Tensor& ids, int64_t experts,
                      const ExpertProduct& product);

// Of each of the two products, with those of its gradients; a row moves this many times the hidden size and
// the width.
trace::OpWork expert_work(const MoeExperts& op, int64_t hiddens, int64_t widths);

// Where gradients go, in the order of an op's inputs: x, weights, gate_up, down and, if there are any, their
// biases.
struct ExpertSlots {
  using Slot = std::shared_ptr<GradSlot>;
  explicit ExpertSlots(const std::vector<const Var*>& of)
      : x(of[0]->slot), weights(of[1]->slot), gate_up(of[2]->slot), down(of[3]->slot) {
    if (of.size() == 4) return;
    gate_up_bias = of[4]->slot;
    down_bias = of[5]->slot;
  }
  static GradTarget target(const Slot& slot, const Tensor& value) {
    return slot ? slot->target(value) : GradTarget{};
  }
  MoeExperts::Wanted wanted() const {
    return {x != nullptr, weights != nullptr, gate_up_bias != nullptr || down_bias != nullptr};
  }
  void add(const MoeExperts::Grads& grads) const {
    if (x) x->add(grads.x);
    if (weights) weights->add(grads.weights);
    if (gate_up_bias) gate_up_bias->add(grads.gate_up_bias);
    if (down_bias) down_bias->add(grads.down_bias);
  }

  Slot x, weights, gate_up, down, gate_up_bias, down_bias;
};

// Of matrices [experts · rows, columns], one after the other.
Var matrix_of_expert(Tape& tape, const Var& matrices, int64_t expert, int64_t experts);

}  // namespace temper::ops
