#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace temper::backends::hopper {

inline constexpr int kMostUpdates = 4;
// Output tiles of a block, and how deep a step of theirs is.
inline constexpr int kTileRows = 128, kTileColumns = 256, kStep = 64;
// Rows of the boxes that operands are copied by, all of kStep columns and swizzled: of a; of b, half a
// tile's, as a cluster's blocks copy one each, or kStep when it is not transposed.
inline constexpr int kRowsOfA = kTileRows, kRowsOfB = kTileColumns / 2;

// All bfloat16.
struct ProductArguments {
  // Adds a bᵀ, or a b, to some columns of d.
  struct Update {
    CUtensorMap a, b;  // [rows, depth] and [columns, depth], or [depth, columns]
    int column, columns, depth;
  };
  CUtensorMap a, b;  // as an update's
  __nv_bfloat16* d;  // [rows, columns]; rows begin at multiples of 16 bytes
  int64_t d_stride;
  Update updates[kMostUpdates];
  const __nv_bfloat16* bias;  // [columns], or null
  int rows, columns, depth;
  int update_count;
};

// d = a bᵀ + bias + updates, or a b where b is not transposed. Sums are float32, of one order: by depth, then
// by the updates'. There is an update; columns are a multiple of 8.
void launch_product(const ProductArguments& arguments, bool transpose_b, int multiprocessors,
                    cudaStream_t stream);

}  // namespace temper::backends::hopper
