#pragma once
#include <cstdint>
#include <vector>

#include "preprocessing/picture_settings.h"

namespace temper::preprocessing {

// Bits behind the point of a weight.
inline constexpr int kWeightBits = 22;

// Of one pass: pixel i of the result is the sum over k of weights[i * taps + k] times pixel first[i] + k,
// plus a half, shifted right by kWeightBits and clipped to a byte.
struct ResampleWeights {
  int64_t taps = 0;              // that each result has room for; the rest of its weights are 0
  std::vector<int64_t> first;    // [results]
  std::vector<int64_t> counts;   // [results]: taps that are in the picture
  std::vector<int32_t> weights;  // [results, taps]

  int64_t size() const { return static_cast<int64_t>(first.size()); }
};

// As Pillow 12.3 computes them (precompute_coeffs and normalize_coeffs_8bpc in Resample.c): the filter is as
// wide as the result's pixel where the picture shrinks; weights are computed in float64, divided by their sum
// and rounded half away from 0.
ResampleWeights resample_weights(int64_t from, int64_t to, Filter filter);

}  // namespace temper::preprocessing
