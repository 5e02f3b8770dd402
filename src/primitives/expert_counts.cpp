#include "primitives/expert_counts.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "primitives/cpu.h"
#include "primitives/device_functions.h"

namespace temper::primitives {

void add_counts(const Tensor& counts, const Tensor& more) {
  invariant(counts.numel() == more.numel(), "[add_counts] as many counts on both sides");
  primitive_functions(counts.device()).add_counts(counts, more);
}

void move_biases(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm) {
  invariant(counts.numel() == biases.numel() + 1, "[move_biases] a count for each bias, and one more");
  primitive_functions(biases.device()).move_biases(biases, counts, rate, norm);
}

namespace cpu {

void add_counts(const Tensor& counts, const Tensor& more) {
  const auto to = counts.values<int32_t>(), from = more.values<int32_t>();
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

void move_biases(const Tensor& biases, const Tensor& counts, float rate, const Tensor& norm) {
  if (!std::isfinite(norm.item())) return;
  const auto to = biases.values<float>();
  const auto chosen = counts.values<int32_t>().first(to.size());
  const int64_t all = std::accumulate(chosen.begin(), chosen.end(), int64_t{0});
  for (size_t e = 0; e < to.size(); ++e) {
    const int64_t above = chosen[e] * std::ssize(to) - all;
    to[e] += above == 0 ? 0 : above > 0 ? -rate : rate;
  }
}

}  // namespace cpu
}  // namespace temper::primitives
