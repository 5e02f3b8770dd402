#pragma once
#include <vector>

#include "primitives/primitives.h"

namespace temper::ops {

// One module's part of a low-rank update of a fused weight.
template <class T>
struct LowRankSlice {
  int64_t column = 0;  // the first of the weight's outputs that it updates
  T b;                 // [outputs, rank]
  float scale = 1;
};

// The update of `out` outputs, [rows, out], zero between the slices: scale · (input aᵀ) bᵀ. input [rows, in],
// a [Σ ranks, in], the slices by ascending columns.
Var compose_update(Tape& tape, const Var& input, const Var& a, const std::vector<LowRankSlice<Var>>& slices,
                   int64_t out);

}  // namespace temper::ops
