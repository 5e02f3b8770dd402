#pragma once
#include <cuda_bf16.h>

#include "backends/hopper/attention/attention_schedule.h"

// What comes before and after attention's backward kernel, tile by tile of a document's queries.
namespace temper::backends::hopper {

struct RowArguments {
  int head_dim, heads, tiles;
  const TileRows* rows;  // [tiles]
};

// Logs of forward, to base e, and where the next head's and the next query's are.
struct ForwardLogs {
  const float* values;
  int64_t head_stride, query_stride;
};

// logs, deltas [heads, tiles · tile]: logs to base 2, infinite where a tile has no query; Σ y dy over
// head_dim. y, dy [tokens, heads, head_dim], compact.
void prepare_rows(const RowArguments& arguments, const ForwardLogs& forward, const __nv_bfloat16* y,
                  const __nv_bfloat16* dy, float* logs, float* deltas, cudaStream_t stream);
// dq = scale · sums, which are laid out as BackwardArguments says. `stride` of dq's tokens, in elements.
void finish_rows(const RowArguments& arguments, const float* sums, float scale, __nv_bfloat16* dq,
                 int64_t stride, cudaStream_t stream);

}  // namespace temper::backends::hopper
