#pragma once
#include <cstdint>

#include "backends/onednn/tiles/blocks.h"

namespace temper::backends {

// A row of logits seen so far: its largest value and Σ exp(logit - largest).
struct Softmax {
  float largest, sum;
};

// Of `rows` rows of `size` logits, `stride` apart.
void measure_rows(const float* logits, int64_t rows, int64_t size, int64_t stride, Softmax* rows_out);

// to[r][i] = exp(logits[r][i] - lse[r]) · factors[r]; `to` is float32 or bfloat16, or the logits themselves.
void exponentiate_rows(const Block& logits, const Block& to, int64_t rows, int64_t size, const float* lse,
                       const float* factors);

}  // namespace temper::backends
