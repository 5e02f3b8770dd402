#include <cmath>
#include <vector>

#include "backends/floats.h"
#include "base/threads/threads.h"
#include "ops/moe_router/choose.h"
#include "ops/moe_router/moe_router.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/moe_router.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

void sigmoids(const float* logits, float* scores, int64_t size) {
  sweep(size,
        [&](int64_t i, auto lanes) HWY_ATTR { store(logistic(load(logits + i, lanes)), scores + i, lanes); });
}

// scores = exp(logits - most); their sum.
float powers(const float* logits, float most, float* scores, int64_t size) {
  Lanes sum = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes power = exponential(hn::Sub(load(logits + i, lanes), fill(most)));
    store(power, scores + i, lanes);
    sum = hn::Add(sum, only(power, lanes));
  });
  return total(sum);
}

void widen_row(const void* row, DType dtype, float* to, int64_t size) {
  visit_wide(dtype, [&]<class T>() { convert(static_cast<const T*>(row), to, size); });
}

void narrow_row(const float* row, void* to, DType dtype, int64_t size) {
  visit_wide(dtype, [&]<class T>() { convert(row, static_cast<T*>(to), size); });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::MoeRouter;
using ops::Routing;
HWY_EXPORT(sigmoids);
HWY_EXPORT(powers);
HWY_EXPORT(widen_row);
HWY_EXPORT(narrow_row);

constexpr int64_t kTokens = 64;  // of a task; sums are added up task by task

// One token's scores, and what they are parts of: p = score / whole.
struct Scores {
  explicit Scores(const Routing& routing)
      : experts(routing.experts), sigmoid(routing.sigmoid), logits(size()), scores(size()) {}
  size_t size() const { return static_cast<size_t>(experts); }

  void read(const Tensor& all, int64_t token) {
    const auto* row = static_cast<const std::byte*>(all.raw()) + token * experts * size_of(all.dtype());
    HWY_DYNAMIC_DISPATCH(widen_row)(row, all.dtype(), logits.data(), experts);
    finite = true;
    most = logits[0];
    for (const float logit : logits) {
      finite = finite && std::isfinite(logit);
      most = std::isnan(logit) || logit > most ? logit : most;
    }
    if (sigmoid) {
      HWY_DYNAMIC_DISPATCH(sigmoids)(logits.data(), scores.data(), experts);
      whole = 0;
      for (const float score : scores) whole += score;
      return;
    }
    power_sum = HWY_DYNAMIC_DISPATCH(powers)(logits.data(), most, scores.data(), experts);
    const float factor = finite ? 1 / power_sum : std::nanf("");
    for (float& score : scores) score *= factor;
    whole = 1;
  }

  // -Σ p log p
  double entropy() const {
    double sum = 0;
    for (size_t e = 0; e < size(); ++e) {
      const double p = scores[e] / whole;
      if (!sigmoid)
        sum -= p * (logits[e] - most);
      else if (p > 0)
        sum -= p * std::log(p);
    }
    return sigmoid ? sum : sum + std::log(static_cast<double>(power_sum));
  }

  int64_t experts;
  bool sigmoid, finite = true;
  float most = 0, power_sum = 0, whole = 1;
  std::vector<float> logits, scores;
};

// The largest sum that a token's weights are divided by.
float divisor(const Routing& routing, const Scores& row, std::span<const int32_t> ids) {
  if (!routing.normalize) return 1;
  float sum = 0;
  for (const int32_t id : ids) sum += row.scores[static_cast<size_t>(id)];
  return sum + 1e-20f;
}

std::span<int32_t> row_of(const Tensor& ids, int64_t token) {
  return {ids.data<int32_t>() + token * ids.dim(1), static_cast<size_t>(ids.dim(1))};
}

// What one task adds up.
struct Sums {
  explicit Sums(int64_t experts) : counts(static_cast<size_t>(experts + 1)), parts(counts.size()) {}
  void add(const Scores& row, std::span<const int32_t> ids) {
    for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
    counts.back() += row.finite ? 0 : 1;
    for (size_t e = 0; e < row.size(); ++e) parts[e] += row.scores[e] / row.whole;
    parts.back() += static_cast<float>(row.entropy());
  }
  std::vector<int32_t> counts;
  std::vector<float> parts;
};

// How many of the first tokens are no padding.
int64_t counted_tokens(const MoeRouter& op) {
  return op.counted.defined() ? op.counted.values<int32_t>()[0] : op.logits.dim(0);
}

void choose_rows(const MoeRouter& op, const MoeRouter::Output& out, int64_t begin, int64_t end, Sums* sums) {
  Scores row(op.routing);
  ops::ExpertChooser chooser(op.routing);
  const auto bias = op.bias.defined() ? op.bias.values<float>() : std::span<const float>();
  const int64_t counted = counted_tokens(op);
  for (int64_t token = begin; token < end; ++token) {
    row.read(op.logits, token);
    const std::span<int32_t> ids = row_of(out.ids, token);
    if (!op.given.defined()) chooser.choose(row.scores, bias, ids);
    const float factor = op.routing.scaling / divisor(op.routing, row, ids);
    float* weights = out.weights.data<float>() + token * op.routing.top_k;
    for (const int32_t id : ids) *weights++ = row.scores[static_cast<size_t>(id)] * factor;
    if (sums != nullptr && token < counted) sums->add(row, ids);
  }
}

MoeRouter::Output forward(const MoeRouter& op, bool want_sums) {
  const int64_t tokens = op.logits.dim(0), experts = op.routing.experts;
  const Shape chosen{tokens, op.routing.top_k}, all{experts + 1};
  MoeRouter::Output out{Tensor::empty(chosen, DType::kI32), Tensor::empty(chosen, DType::kF32), {}, {}};
  if (op.given.defined()) out.ids.copy_from(op.given);
  std::vector<Sums> sums(want_sums ? static_cast<size_t>((tokens + kTokens - 1) / kTokens) : 0,
                         Sums(experts));
  parallel_ranges(tokens, kTokens, [&](int64_t begin, int64_t end) {
    choose_rows(op, out, begin, end, want_sums ? &sums[static_cast<size_t>(begin / kTokens)] : nullptr);
  });
  if (!want_sums) return out;
  out.counts = Tensor::zeros(all, DType::kI32);
  out.sums = Tensor::zeros(all, DType::kF32);
  for (const Sums& task : sums)
    for (size_t e = 0; e < task.counts.size(); ++e) {
      out.counts.data<int32_t>()[e] += task.counts[e];
      out.sums.data<float>()[e] += task.parts[e];
    }
  return out;
}

// dscores of one token's weights, added to `grads`.
void add_of_weights(const Routing& routing, const Scores& row, std::span<const int32_t> ids,
                    const float* dweights, std::vector<float>& grads) {
  const float divided = divisor(routing, row, ids), factor = routing.scaling / divided;
  float along = 0;
  if (routing.normalize)
    for (size_t j = 0; j < ids.size(); ++j)
      along += dweights[j] * row.scores[static_cast<size_t>(ids[j])] / divided;
  for (size_t j = 0; j < ids.size(); ++j)
    grads[static_cast<size_t>(ids[j])] += factor * (dweights[j] - along);
}

// The same of the sums of p = score / whole.
void add_of_sums(const Scores& row, const float* dsums, std::vector<float>& grads) {
  float along = 0;
  if (row.sigmoid)  // a softmax's whole is 1 whatever the scores
    for (size_t e = 0; e < row.size(); ++e) along += dsums[e] * row.scores[e] / row.whole;
  for (size_t e = 0; e < row.size(); ++e) grads[e] += (dsums[e] - along) / row.whole;
}

// From the scores' gradients to the logits', in place.
void to_logits(const Scores& row, std::vector<float>& grads) {
  float along = 0;
  if (!row.sigmoid)
    for (size_t e = 0; e < row.size(); ++e) along += grads[e] * row.scores[e];
  for (size_t e = 0; e < row.size(); ++e)
    grads[e] =
        row.sigmoid ? grads[e] * row.scores[e] * (1 - row.scores[e]) : row.scores[e] * (grads[e] - along);
}

Tensor backward(const MoeRouter& op, const MoeRouter::Output& out, const Tensor& dweights,
                const Tensor& dsums) {
  const int64_t experts = op.routing.experts, counted = counted_tokens(op);
  const Tensor dlogits = Tensor::empty(op.logits.shape(), op.logits.dtype());
  parallel_ranges(op.logits.dim(0), kTokens, [&](int64_t begin, int64_t end) {
    Scores row(op.routing);
    std::vector<float> grads(row.size());
    for (int64_t token = begin; token < end; ++token) {
      row.read(op.logits, token);
      std::fill(grads.begin(), grads.end(), 0.0f);
      if (dweights.defined())
        add_of_weights(op.routing, row, row_of(out.ids, token),
                       dweights.data<float>() + token * op.routing.top_k, grads);
      if (dsums.defined() && token < counted) add_of_sums(row, dsums.data<float>(), grads);
      to_logits(row, grads);
      HWY_DYNAMIC_DISPATCH(narrow_row)
      (grads.data(), static_cast<std::byte*>(dlogits.raw()) + token * experts * size_of(dlogits.dtype()),
       dlogits.dtype(), experts);
    }
  });
  return dlogits;
}

}  // namespace

void register_simd_moe_router() {
  ops::kernels<MoeRouter>().add(
      "simd", {.accepts = refuse_float16, .forward = forward, .backward = backward, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
