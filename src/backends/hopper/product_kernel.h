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

// Which half of swiglu goes with a product (ops/swiglu), with the bits that it has by itself:
// kForward: d is gate|up, and y = swiglu(d) is written, too. kBackward: the product is the gradient of
// swiglu(gate_up), and d that of gate_up; y = swiglu(gate_up), where it is wanted.
enum class Gate { kNone, kForward, kBackward };

// All bfloat16.
struct ProductArguments {
  // Adds a bᵀ, or a b, to some columns of d.
  struct Update {
    CUtensorMap a, b;  // [rows, depth] and [columns, depth], or [depth, columns]
    int column, columns, depth;
  };
  CUtensorMap a, b;  // as an update's
  __nv_bfloat16* d;  // [rows, columns], or with swiglu [rows, 2 columns]; rows begin at multiples of 16 bytes
  int64_t d_stride;
  CUtensorMap gate_up;  // [rows, 2 columns], copied by boxes as of a; kBackward
  __nv_bfloat16* y;     // [rows, columns] as d, or null; with swiglu
  int64_t y_stride;
  Update updates[kMostUpdates];
  const __nv_bfloat16* bias;  // of d's columns, or null
  int rows, columns, depth;
  int update_count;
};

// d = a bᵀ + bias + updates, or a b where b is not transposed. Sums are float32, of one order: by depth, then
// by the updates'. There is an update; columns are a multiple of 8. Forward swiglu is for a transposed b,
// backward for one that is not.
void launch_product(const ProductArguments& arguments, bool transpose_b, Gate gate, int multiprocessors,
                    cudaStream_t stream);

}  // namespace temper::backends::hopper
