#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "backends/gpu/expert_plan.h"

namespace temper::backends::hopper {

// Gradients of experts' matrices. Of each expert, over its rows:
//   d_e (+)= Σ rows[row]ᵀ gathered[tokens[row]]    or transposed: Σ gathered[tokens[row]]ᵀ rows[row]
struct ExpertGradientArguments {
  CUtensorMap rows;               // [rows, columns] bfloat16, in the plan's order; boxes of 64 x 64, swizzled
  const __nv_bfloat16* row_data;  // the same
  const __nv_bfloat16* gathered;  // [tokens, gathered_columns], compact
  const int *tokens, *starts;     // of the plan; without tokens gathered has its order
  void* d;  // from a multiple of 16 bytes on: [experts, columns, gathered_columns], or the last two exchanged
  CUtensorMap boxes;  // of d: 64 rows of 128 bytes, swizzled
  int experts, columns, gathered_columns;
  bool bfloat16, accumulate;
};

// Both numbers of columns are multiples of 8. Sums are float32, over an expert's rows in their order; an
// expert without rows has zeros.
void launch_expert_gradients(const ExpertGradientArguments& arguments, bool transposed, int multiprocessors,
                             cudaStream_t stream);

}  // namespace temper::backends::hopper
