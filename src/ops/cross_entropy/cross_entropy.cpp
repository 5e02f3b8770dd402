#include "ops/cross_entropy/cross_entropy.h"

#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

CrossEntropy::Vars compose(Tape& tape, const Var& hidden, const Var& weight, const Tensor& targets,
                           float scale) {
  const int64_t tokens = hidden.shape()[0];
  const Tensor seen = targets.on({}), kept = Tensor::zeros({tokens, 1}, DType::kF32),
               safe = Tensor::zeros({tokens}, DType::kI32);
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t target = seen.data<int32_t>()[t];
    if (target == CrossEntropy::kIgnore) continue;
    kept.data<float>()[t] = 1;
    safe.data<int32_t>()[t] = target;
  }
  const Var logits = p::cast(tape, p::matmul(tape, hidden, weight, {.transpose_b = true}), DType::kF32);
  const Var shifted = p::sub(tape, logits, p::max_last(tape, logits));
  const Var log_sum = p::log(tape, p::sum_last(tape, p::exp(tape, shifted)));
  const Var nll = p::mul(tape, p::sub(tape, log_sum, p::take_last(tape, shifted, safe)),
                         tape.constant(kept.on(hidden.value.device())));
  const Var loss = p::scale(tape, p::sum_last(tape, p::reshape(tape, nll, {tokens})), scale);
  return {loss, nll.value.reshape({tokens})};
}

void check(const Var& hidden, const Var& weight, const Tensor& targets) {
  constexpr auto op = CrossEntropy::kName;
  check_ndim(op, "hidden", hidden.value, 2);
  check_float(op, "hidden", hidden.value);
  check_contiguous(op, "hidden", hidden.value);
  check_ndim(op, "weight", weight.value, 2);
  check_shape(op, "weight", weight.value, {weight.shape()[0], hidden.shape()[1]});
  check_dtype(op, "weight", weight.value, hidden.dtype());
  check_contiguous(op, "weight", weight.value);
  check_shape(op, "targets", targets, {hidden.shape()[0]});
  check_dtype(op, "targets", targets, DType::kI32);
  for (const int32_t target : visible_ids(targets))
    if (target != CrossEntropy::kIgnore && (target < 0 || target >= weight.shape()[0]))
      fail("[cross_entropy] target {} is outside the vocabulary [0, {}) and not {}", target,
           weight.shape()[0], CrossEntropy::kIgnore);
}

}  // namespace

CrossEntropy::Vars cross_entropy(Tape& tape, const BoundOps& ops, const Var& hidden, const Var& weight,
                                 const Tensor& targets, float scale) {
  check(hidden, weight, targets);
  const auto& kernel = ops.get<CrossEntropy>();
  if (kernel.compose != nullptr) return kernel.compose(tape, hidden, weight, targets, scale);
  const bool learn_weight = tape.recording() && weight.requires_grad();
  const GradTarget target = learn_weight ? weight.slot->target(weight.value) : GradTarget{};
  const CrossEntropy::Output out = kernel.forward({hidden.value, weight.value, targets, scale},
                                                  tape.recording() && hidden.requires_grad(), target);
  const Var loss = tape.record(
      out.loss, {&hidden, &weight}, [&tape, slot = hidden.slot, dhidden = out.dhidden](const Tensor& seed) {
        if (!tape.is_one(seed))
          fail("[cross_entropy] the loss must be the root of the tape; put factors into `scale`");
        if (slot) slot->add(dhidden);
      });
  return {loss, out.nll};
}

Probe cross_entropy_probe;

void register_cross_entropy() { register_op<CrossEntropy>(compose, cross_entropy_probe); }

}  // namespace temper::ops
