#pragma once
#include <cstdint>

#include "backends/onednn/tiles/blocks.h"

namespace temper::backends {

// A tile of attention scores: rows are queries times the heads of a group, columns are keys. Row r sees the
// columns from end(r) - window (0 without a window) to end(r) = seen + r / group, both cut to [0, columns).
struct Scores {
  float* data;
  int64_t rows, columns, stride;
  int64_t seen, group, window;
  float scale;
};

// One step of softmax over tiles: turns scores into exp(scale · score - largest), 0 where not seen, moves
// largest and sum [rows] on, and rescales y [rows, dim] to the new largest.
void softmax_step(const Scores& scores, float* largest, float* sum, float* y, int64_t dim);

// Turns scores into P = exp(scale · score - lse) and dp into P (dp - delta) scale; both 0 where not seen.
void softmax_backward(const Scores& scores, float* dp, const float* lse, const float* delta);

// y [rows, dim] += weights [rows, columns] values [columns, dim], for few rows: values are read from memory
// once.
void mix_rows(const Scores& weights, const Block& values, float* y, int64_t dim);

// sums[r] = a[r] · b[r] for rows of `size` elements of the same dtype.
void dot_pairs(const Block& a, const Block& b, int64_t rows, int64_t size, float* sums);

// rows[r] *= factors[r]
void scale_rows(float* rows, int64_t count, int64_t size, const float* factors);

}  // namespace temper::backends
