#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "backends/hopper/expert_items.h"
#include "backends/hopper/product_kernel.h"

namespace temper::backends::hopper {

// Boxes by which operands are copied, of 64 columns and swizzled: of matrices, kRowsOfMatrix rows where the
// depth lies along the columns, else kStep; of rows that are not gathered; of gate_up.
inline constexpr int kRowsOfMatrix = 128, kRowsOfBox = 64, kRowsOfGateBox = 16;

// Of each expert e, with its matrix and its rows, all bfloat16: the rows times matrix_eᵀ, or times matrix_e.
// Rows of `d` are as the plan has them. With a gate (product_kernel.h) the weight of a row's choice is a
// factor of swiglu:
//   kForward: d is gate|up; y = weight · swiglu(d)
//   kBackward: the product is the gradient of weight · swiglu(gate_up), d that of gate_up; y as forward;
//     dots[row, ·] are parts of the gradient of the row's weight
// With an update, low_e times its matrix, transposed or not as matrix_e is, continues the same sums.
struct ExpertProductArguments {
  CUtensorMap matrices;           // 3 dimensions, of which the last is the expert
  CUtensorMap rows;               // or, if there are `tokens`:
  const __nv_bfloat16* gathered;  // row i is gathered's row tokens[i]
  const int *tokens, *choices;    // of the plan
  const ExpertItems* items;
  __nv_bfloat16* d;  // [rows, columns], with a gate [rows, 2 columns]; null: not wanted (kForward)
  __nv_bfloat16* y;  // [rows, columns] or null; with a gate
  const __nv_bfloat16* gate_up;              // [rows, 2 columns]; kBackward
  const float* weights;                      // of choices; with a gate
  float* dots;                               // [rows, parts_of_dots(columns)] or null; kBackward
  int columns, depth;                        // columns: of swiglu, with a gate
  CUtensorMap update_matrices, update_rows;  // as the two above
  const __nv_bfloat16* low;                  // [rows, update_depth], in the plan's order
  int update_depth;                          // a multiple of 8; 0: no update
};

// Steps of kStep along the depth, of the product and of its update.
__host__ __device__ inline int steps_of(int depth) { return (depth + kStep - 1) / kStep; }
__host__ __device__ inline int steps_of(const ExpertProductArguments& g) {
  return steps_of(g.depth) + steps_of(g.update_depth);
}

inline int64_t parts_of_dots(int64_t columns) { return 2 * ((columns + kTileColumns - 1) / kTileColumns); }

// Sums are float32, along the depth, in an order that does not depend on the other rows. Columns and depth
// are multiples of 8. Gathers where there are `tokens`; kForward is for a transposed matrix, kBackward for
// one that is not, and both gather.
void launch_expert_product(const ExpertProductArguments& arguments, bool transpose, Gate gate,
                           int multiprocessors, cudaStream_t stream);

}  // namespace temper::backends::hopper
