#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace temper::backends::hopper {

inline constexpr int kMostSlices = 4, kMostRank = 32;
// Tiles of dy that are copied at once, as two boxes of 64 columns, swizzled.
inline constexpr int kNarrowRows = 128, kNarrowColumns = 128;
// Tiles side by side whose sums a block keeps in registers.
inline constexpr int most_tiles(int padded_rank) { return padded_rank == 16 ? 8 : 6; }

// Of each slice, where dy is bfloat16 [rows, columns] and ranks are multiples of 8:
//   dlow = scale · dy b    db (+)= dyᵀ low
// Blocks have a panel of columns and a share of the rows each; what they sum is added up in their order.
struct NarrowArguments {
  struct Slice {
    const __nv_bfloat16 *b, *low;  // [columns, rank] compact; [rows, rank]
    __nv_bfloat16* dlow;           // [rows, rank]
    void* db;                      // [columns, rank] compact, float32 or bfloat16, or null
    int64_t low_stride, dlow_stride;
    int column, columns, rank;
    int panel;  // its first
    float scale;
    bool accumulate;
  };
  CUtensorMap dy;
  Slice slices[kMostSlices];
  float* low_sums;  // [panels, rows, padded rank]
  float* b_sums;    // [shares, panels · tiles · kNarrowColumns, padded rank]
  int slice_count, rows, panels, tiles, shares;
  bool db_is_bfloat16;
};

// padded_rank: 16 or 32, no less than any rank.
void launch_narrow_gradients(int padded_rank, const NarrowArguments& arguments, cudaStream_t stream);

}  // namespace temper::backends::hopper
