#pragma once
#include <cstdint>

namespace temper::backends {

// A row of logits seen so far: its largest value and Σ exp(logit - largest).
struct Softmax {
  float largest, sum;
};

// Of `rows` rows of `size` logits, `stride` apart.
void measure_rows(const float* logits, int64_t rows, int64_t size, int64_t stride, Softmax* rows_out);

// logits[r][i] = exp(logits[r][i] - lse[r]) · factors[r], in place.
void exponentiate_rows(float* logits, int64_t rows, int64_t size, int64_t stride, const float* lse,
                       const float* factors);

}  // namespace temper::backends
