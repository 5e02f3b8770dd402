#include "ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <span>

#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/collectives.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

namespace p = primitives;

// Of all ranks' logits, of which each has found the largest of its own, [tokens, 1].
Var largest_of(Tape& tape, const Var& own, const VocabularyRanks& ranks) {
  if (ranks.group == nullptr) return own;
  return p::max_last(tape, p::columns_of_ranks(tape, tape.constant(own.value), *ranks.group));
}

CrossEntropy::Vars compose(Tape& tape, const Var& hidden, const Var& weight, const Tensor& targets,
                           const CrossEntropy::Factors& factors, const VocabularyRanks& ranks) {
  const int64_t tokens = hidden.shape()[0];
  const Tensor seen = targets.on({}), kept = Tensor::zeros({tokens, 1}, DType::kF32),
               here = Tensor::zeros({tokens, 1}, DType::kF32), safe = Tensor::zeros({tokens}, DType::kI32);
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t target = seen.data<int32_t>()[t];
    if (target == CrossEntropy::kIgnore) continue;
    kept.data<float>()[t] = 1;
    const int64_t row = target - ranks.first;
    if (row < 0 || row >= weight.shape()[0]) continue;
    here.data<float>()[t] = 1;
    safe.data<int32_t>()[t] = static_cast<int32_t>(row);
  }
  const Var logits = p::cast(tape, p::matmul(tape, hidden, weight, {.transpose_b = true}), DType::kF32);
  const Var largest = largest_of(tape, p::max_last(tape, logits), ranks),
            shifted = p::sub(tape, logits, largest);
  const auto whole = [&](const Var& part) {
    return ranks.group == nullptr ? part : p::sum_of_ranks(tape, part, *ranks.group);
  };
  const Var log_sum = p::log(tape, whole(p::sum_last(tape, p::exp(tape, shifted))));
  const Var wanted =
      whole(p::mul(tape, p::take_last(tape, shifted, safe), tape.constant(here.on(hidden.value.device()))));
  const Var mask = tape.constant(kept.on(hidden.value.device()));
  const auto mean = [&](Var each, float factor) {
    if (factors.tokens.defined())
      each = p::mul(tape, each, tape.constant(factors.tokens.reshape({tokens, 1}).on(hidden.value.device())));
    return p::scale(tape, p::sum_last(tape, p::reshape(tape, each, {tokens})), factor);
  };
  const Var nll = p::mul(tape, p::sub(tape, log_sum, wanted), mask);
  const Var loss = mean(nll, factors.scale);
  if (factors.z_loss == 0) return {loss, nll.value.reshape({tokens}), {}};
  const Var lse = p::mul(tape, p::add(tape, log_sum, largest), mask);
  const Var z = mean(p::mul(tape, lse, lse), factors.scale * factors.z_loss);
  return {p::add(tape, loss, z), nll.value.reshape({tokens}), z.value};
}

void check_targets(const Tensor& targets, int64_t vocab) {
  for (const int32_t target : visible_ids(targets))
    if (target != CrossEntropy::kIgnore && (target < 0 || target >= vocab))
      fail("[cross_entropy] target {} is outside the vocabulary [0, {}) and not {}", target, vocab,
           CrossEntropy::kIgnore);
}

void check(const Var& hidden, const Var& weight, const Tensor& targets, const Tensor& factors,
           const VocabularyRanks& ranks) {
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
  if (factors.defined()) {
    check_shape(op, "factors", factors, targets.shape());
    check_dtype(op, "factors", factors, DType::kF32);
    invariant(factors.device().type == DeviceType::kCpu, "factors of tokens are on the CPU");
  }
  const int64_t all = weight.shape()[0] * (ranks.group == nullptr ? 1 : ranks.group->size());
  check_targets(targets, all);
  take_for_granted("targets " + name_of(targets), [targets, vocab = all] {
    check_targets(targets, vocab);
    return true;
  });
}

// Fused kernels form the gradients forward: three products instead of one.
trace::OpWork work(const Tensor& hidden, const Tensor& weight, const Tensor& targets, bool gradients,
                   bool fused) {
  const auto targeted =
      targets.device().type == DeviceType::kCpu ? targets.values<int32_t>() : std::span<const int32_t>();
  const auto ignored = std::count(targeted.begin(), targeted.end(), CrossEntropy::kIgnore);
  const auto rows = static_cast<double>(hidden.dim(0) - ignored);
  const double product = 2 * rows * static_cast<double>(weight.numel());
  const double bytes = static_cast<double>(hidden.bytes() + weight.bytes());
  const trace::Work one{product, bytes}, gradient{2 * product, 2 * bytes};
  if (!gradients) return {one, {}};
  if (!fused) return {one, gradient};
  return {{3 * product, 3 * bytes}, {}};
}

}  // namespace

CrossEntropy::Vars cross_entropy(Tape& tape, Bound<CrossEntropy> bound, const Var& hidden, const Var& weight,
                                 const Tensor& targets, const CrossEntropy::Factors& factors,
                                 const VocabularyRanks& ranks) {
  check(hidden, weight, targets, factors.tokens, ranks);
  const auto& kernel = *bound;
  const trace::Span span(CrossEntropy::kName, [&] {
    return work(hidden.value, weight.value, targets, tape.recording(), kernel.compose == nullptr);
  });
  if (kernel.compose != nullptr) return kernel.compose(tape, hidden, weight, targets, factors, ranks);
  const bool learn_weight = tape.recording() && weight.requires_grad();
  const GradTarget target = learn_weight ? weight.slot->target(weight.value) : GradTarget{};
  const CrossEntropy::Output out = kernel.forward({hidden.value, weight.value, targets, factors, ranks},
                                                  tape.recording() && hidden.requires_grad(), target);
  const Var loss = tape.record(
      out.loss, {&hidden, &weight}, [&tape, slot = hidden.slot, dhidden = out.dhidden](const Tensor& seed) {
        if (!tape.is_one(seed))
          fail("[cross_entropy] the loss must be the root of the tape; put factors into `scale`");
        if (slot) slot->add(dhidden);
      });
  return {loss, out.nll, out.z};
}

namespace {

CrossEntropy::Output outline_forward(const CrossEntropy& op, bool want_dhidden, const GradTarget&) {
  const auto floats = [&](int64_t count) { return empty_like(op.hidden, {count}, DType::kF32); };
  return {floats(1), floats(op.hidden.dim(0)), op.factors.z_loss != 0 ? floats(1) : Tensor(),
          want_dhidden ? empty_like(op.hidden, op.hidden.shape()) : Tensor()};
}

}  // namespace

Probe cross_entropy_probe;

void register_cross_entropy() {
  register_op<CrossEntropy>(
      compose, cross_entropy_probe, {outline_forward},
      {.cpu = {{{"onednn", "onednn"}, {"chunk_loss", "onednn"}}},
       .gpu = {{{"cublaslt", "cublaslt"}, {"chunk_loss", "cublaslt"}, {"liger_kernel", "cublaslt"}}},
       .npu = {{{"chunk_loss", "npu"}, {"npu", "npu"}}}});
}

}  // namespace temper::ops
