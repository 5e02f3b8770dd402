#pragma once
#include "backends/cuda/sampling/sample_scores.h"

// What the blocks that share a sequence count, where not all tokens stay (sample.cu).
namespace temper::backends {

inline constexpr int kMostBlocks = 64;  // of a sequence
inline constexpr int kBins = 2048;
inline constexpr int kLevels = 3;    // digits of 11, 11 and 10 bits
inline constexpr int kSearches = 3;  // top-k, top-p, the choice
inline constexpr int kPerThread = kBins / kThreads;

__device__ inline int shift_of(int level) { return level == 0 ? 21 : level == 1 ? 10 : 0; }

struct Histogram {
  unsigned counts[kBins];
  Mass masses[kBins];
};

// What the blocks of a sequence share.
struct Shared {
  Histogram histograms[kSearches * kLevels];
  Mass all, likely;        // sums over all tokens, and over those that min-p keeps
  Mass best[kMostBlocks];  // score and token, largest first, lowest token among equals
  unsigned equals[kMostBlocks];
};

}  // namespace temper::backends
