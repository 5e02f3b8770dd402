#pragma once
#include "backends/gpu/expert_plan.h"

namespace temper::backends::hopper {

inline constexpr int kMostTokens = 128;  // rows of an expert in a tile

// The rows of an expert that a cluster's two blocks compute together: [row, middle) and [middle, end). An
// expert's rows are divided evenly into tiles of at most kMostTokens; the last of an odd number of tiles is
// alone, with middle = end, and the blocks share its columns instead.
struct ExpertItem {
  int row, middle, end, expert;
  int pairs, singles;  // items of either kind before this one
  int unused[2];
};
// `count` items are followed by one that has only the numbers of all before it.
struct ExpertItems {
  int count, unused[7];
  ExpertItem items[1];
};

// Made on the GPU; bytes as ExpertItems describes them. On a device that only counts it takes its memory.
Tensor expert_items(const ExpertPlan& plan);

}  // namespace temper::backends::hopper
