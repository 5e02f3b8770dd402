#include "mixers/gated_delta/bound_delta_rule.h"

#include <cmath>

#include "mixers/gated_delta/bound_gated_delta.h"

namespace temper::mixers {

BoundDeltaRule::BoundDeltaRule(const GatedDeltaConfig& config, const layers::Binding& binding, bool invariant)
    : chunks_(binding.kernel<ops::ChunkGatedDeltaRule>(kGatedDelta)),
      step_(binding.kernel<ops::RecurrentGatedDeltaRule>(kGatedDelta)),
      key_dim_(config.key_dim),
      value_dim_(config.value_dim),
      scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(config.key_dim)))),
      by_steps_(invariant && step_->batch_invariant && step_->forward != nullptr) {}

ops::ChunkGatedDeltaRule BoundDeltaRule::op(const ops::Documents& documents) const {
  ops::ChunkGatedDeltaRule op;
  op.documents = documents;
  op.scale = scale_;
  return op;
}

ops::RecurrentGatedDeltaRule BoundDeltaRule::step_op(const ops::ChunkGatedDeltaRule::Inputs& in,
                                                     const Tensor& states) const {
  return {in.q.value, in.k.value, in.v.value, in.g.value, in.beta.value, states, scale_};
}

Tensor BoundDeltaRule::step(const ops::ChunkGatedDeltaRule::Inputs& in, const Tensor& states,
                            const Tensor& slots) const {
  ops::RecurrentGatedDeltaRule op = step_op(in, states);
  op.slots = slots;
  return ops::recurrent_gated_delta_rule(step_, op);
}

ops::DeltaResult BoundDeltaRule::operator()(Tape& tape, const ops::ChunkGatedDeltaRule::Inputs& in,
                                            const ops::Documents& documents, bool want_final) const {
  const auto by_chunks = [&] {
    return ops::chunk_gated_delta_rule(tape, chunks_, in, op(documents), want_final);
  };
  if (!by_steps_) return by_chunks();
  const Tensor& initial = in.initial.value;
  const Tensor states = !initial.defined()
                            ? Tensor::zeros({documents.count(), in.v.shape()[1], key_dim_, value_dim_},
                                            DType::kF32, MemoryTag::kActivations, in.v.value.device())
                        : tape.recording() ? initial.clone()
                                           : initial;
  ops::RecurrentGatedDeltaRule steps = step_op(in, states);
  steps.documents = documents;
  const Tensor y = ops::recurrent_gated_delta_rule(step_, steps);
  if (!tape.recording()) return {tape.constant(y), tape.constant(states)};
  const ops::DeltaResult chunks = by_chunks();
  const auto with_gradient = [&](const Tensor& value, const Var& of) {
    if (!of.requires_grad()) return tape.constant(value);
    return tape.record(value, {&of}, [slot = of.slot](const Tensor& grad) { slot->add(grad); });
  };
  return {with_gradient(y, chunks.y), want_final ? with_gradient(states, chunks.final_state) : Var{}};
}

}  // namespace temper::mixers
