// A few numbers for each token: plain loops.
#include <cmath>

#include "backends/floats.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"

namespace temper::backends {
namespace {

using ops::DeltaGates;

float softplus(float x) { return std::max(x, 0.f) + std::log1p(std::exp(-std::fabs(x))); }
float logistic(float x) { return 1 / (1 + std::exp(-x)); }

// What a head multiplies softplus with, and its bias.
struct Vectors {
  Tensor rates, biases;

  explicit Vectors(const DeltaGates& op)
      : rates(op.a_log.to(DType::kF32, MemoryTag::kWorkspace).clone(MemoryTag::kWorkspace)),
        biases(op.dt_bias.to(DType::kF32, MemoryTag::kWorkspace).contiguous()) {
    for (float& rate : rates.values<float>()) rate = -std::exp(rate);
  }
};

DeltaGates::Output forward(const DeltaGates& op) {
  const int64_t tokens = op.a.dim(0), heads = op.a.dim(1);
  const Vectors vectors(op);
  const DeltaGates::Output out{Tensor::empty(op.a.shape(), DType::kF32),
                               Tensor::empty(op.a.shape(), DType::kF32)};
  parallel_ranges(tokens, rows_per_task(16 * heads), [&](int64_t begin, int64_t end) {
    visit_wide(op.a.dtype(), [&]<class T>() {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const auto a = static_cast<float>(op.a.data<T>()[t * op.a.stride(0) + h]),
                     b = static_cast<float>(op.b.data<T>()[t * op.b.stride(0) + h]);
          out.g.data<float>()[t * heads + h] =
              vectors.rates.data<float>()[h] * softplus(a + vectors.biases.data<float>()[h]);
          out.beta.data<float>()[t * heads + h] = logistic(b);
        }
    });
  });
  return out;
}

DeltaGates::Grads backward(const DeltaGates& op, const Tensor& dg, const Tensor& dbeta,
                           const GradTarget& a_log, const GradTarget& dt_bias) {
  const int64_t tokens = op.a.dim(0), heads = op.a.dim(1);
  const Vectors vectors(op);
  const DeltaGates::Grads grads{Tensor::empty(op.a.shape(), op.a.dtype()),
                                Tensor::empty(op.a.shape(), op.a.dtype())};
  const bool sums_wanted = a_log.wanted() || dt_bias.wanted();
  const RowSums sums(tokens, 16 * heads, sums_wanted ? 2 * heads : 0);
  parallel_ranges(tokens, sums.grain(), [&](int64_t begin, int64_t end) {
    float* const own = sums.piece(begin);
    visit_wide(op.a.dtype(), [&]<class T>() {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const float x = static_cast<float>(op.a.data<T>()[t * op.a.stride(0) + h]) +
                          vectors.biases.data<float>()[h],
                      strength = logistic(static_cast<float>(op.b.data<T>()[t * op.b.stride(0) + h]));
          const float along = dg.data<float>()[t * heads + h] * vectors.rates.data<float>()[h],
                      da = along * logistic(x);
          grads.a.data<T>()[t * heads + h] = T(da);
          grads.b.data<T>()[t * heads + h] =
              T(dbeta.data<float>()[t * heads + h] * strength * (1 - strength));
          if (own == nullptr) continue;
          own[h] += along * softplus(x);
          own[heads + h] += da;
        }
    });
  });
  sums.add_to(a_log, 0);
  sums.add_to(dt_bias, heads);
  return grads;
}

}  // namespace

void register_simd_delta_gates() {
  ops::kernels<DeltaGates>().add(
      "simd", {.accepts = refuse_float16, .forward = forward, .backward = backward, .batch_invariant = true});
}

}  // namespace temper::backends
