#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// The choices of tokens, sorted by expert: a row is one choice (a token and one of its experts), the rows of
// an expert are together, and those of one expert have the order of their tokens. Made on the GPU alone,
// without the host: the same choices give the same plan.
struct ExpertPlan {
  Tensor memory;  // [3 rows + experts + 1] int32: places, choices, tokens and starts, one after the other
  int64_t rows = 0, experts = 0;

  int* places() const { return memory.data<int32_t>(); }  // [rows]: the row of each choice
  int* choices() const { return places() + rows; }     // [rows]: the choice of each row, token · top_k + j
  int* tokens() const { return places() + 2 * rows; }  // [rows]: its token
  int* starts() const { return places() + 3 * rows; }  // [experts + 1]: the first row of each expert
};

inline constexpr int64_t kMostExperts = 1024;

// ids [tokens, top_k] int32, compact, each in [0, experts); at most kMostExperts experts. On a device that
// only counts it takes its memory and computes nothing.
ExpertPlan plan_experts(const Tensor& ids, int64_t experts);

}  // namespace temper::backends
