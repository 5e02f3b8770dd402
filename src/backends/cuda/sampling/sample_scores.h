#pragma once
#include "backends/cuda/sampling/philox.h"
#include "backends/gpu/device_code.h"
#include "ops/sample/sample.h"

// What the kernels of sample share. Probabilities are whole numbers of 2⁻⁴²: sums do not depend on their
// order.
namespace temper::backends {

using Mass = unsigned long long;

inline constexpr float kMassUnit = 4398046511104.f;  // 2⁴²: the sum of 2²⁰ of them still fits
inline constexpr unsigned kInfinityKey = 0xff800000u, kMinusInfinityKey = 0x007fffffu, kNaNKey = 0xffffffffu;

// Scores as whole numbers of the same order; NaN is the largest.
__device__ inline unsigned key_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.f);  // -0 is 0
  if ((bits & 0x7fffffffu) > 0x7f800000u) return kNaNKey;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float score_of(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A logit as the repetition penalty leaves it.
__device__ inline float penalized(float logit, double penalty) {
  return static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
}

// exp((score - best) / temperature).
__device__ inline Mass mass_of_score(float score, float best, float inverse_temperature) {
  const float x = (score - best) * inverse_temperature;
  return x < -30.f ? 0 : __float2ull_rn(expf(x) * kMassUnit);
}

// The random number of a position, in [0, 1), and the unit of `kept` that it names.
__device__ inline double uniform_at(uint64_t seed, int position) {
  const uint4 w =
      philox_words(seed, static_cast<uint32_t>(RandomPurpose::kSampling), 0, static_cast<uint64_t>(position));
  return static_cast<double>((uint64_t{w.x} << 32 | w.y) >> 11) * 0x1p-53;
}
__device__ inline Mass point_of(double uniform, Mass kept) {
  const auto point = static_cast<Mass>(uniform * static_cast<double>(kept));
  return point < kept - 1 ? point : kept - 1;
}

// Whether all tokens stay, or only the largest matters, so that none needs to be sorted: choose_in_order
// takes such rows, and the kernel that cuts takes the others.
__device__ inline bool keeps_all(const ops::SamplingOptions& options, int vocab) {
  return options.temperature <= 0 ||
         ((options.top_k <= 0 || options.top_k >= vocab) && options.top_p >= 1 && options.min_p <= 0);
}

// Rows of which all tokens stay: a block each.
void choose_in_order(const ops::Sample& op);

}  // namespace temper::backends
