#include "backends/hopper/attention/attention_backward_rows.h"

#include "backends/hopper/attention/attention_schedule.h"
#include "backends/gpu/device_code.h"

namespace temper::backends::hopper {
namespace {

constexpr int kElements = kLanes<__nv_bfloat16>;
using Chunk = Pack<__nv_bfloat16, kElements>;

__device__ float dot(const Chunk& a, const Chunk& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) sum += widen(a.values[i]) * widen(b.values[i]);
  return sum;
}

// A block for each tile and head.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    prepare(RowArguments arguments, ForwardLogs forward, const __nv_bfloat16* y, const __nv_bfloat16* dy,
            float* logs, float* deltas) {
  constexpr int kTile = tile_of(kDim), kThreadsOfRow = kDim / kElements, kRows = kThreads / kThreadsOfRow;
  __shared__ float sums[kTile];
  const TileRows tile = arguments.rows[blockIdx.x];
  const int head = blockIdx.y, lane = threadIdx.x % kThreadsOfRow;
  constexpr int kSteps = kTile / kRows;
  Chunk left[kSteps], right[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int row = step * kRows + threadIdx.x / kThreadsOfRow;
    const int64_t token = tile.token + (row < tile.rows ? row : 0);
    const int64_t at = (token * arguments.heads + head) * kDim + lane * kElements;
    left[step] = load_pack<__nv_bfloat16, kElements>(y + at);
    right[step] = load_pack<__nv_bfloat16, kElements>(dy + at);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    float sum = dot(left[step], right[step]);
    for (int other = kThreadsOfRow / 2; other > 0; other /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, other);
    const int row = step * kRows + threadIdx.x / kThreadsOfRow;
    if (lane == 0) sums[row] = row < tile.rows ? sum : 0.f;
  }
  __syncthreads();
  if (threadIdx.x >= kTile) return;
  const int row = threadIdx.x;
  const int64_t to = (int64_t{head} * arguments.tiles + blockIdx.x) * kTile + row;
  deltas[to] = sums[row];
  logs[to] = row < tile.rows
                 ? forward.values[tile.log + head * forward.head_stride + row * forward.query_stride] * kLog2E
                 : INFINITY;
}

// Sums of a tile are in the order of the registers that held them (wgmma.h).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    finish(RowArguments arguments, const float4* sums, float scale, __nv_bfloat16* dq, int64_t stride) {
  constexpr int kTile = tile_of(kDim), kWarpgroup = 128, kParts = 8;
  constexpr int kPadded = kDim + kElements;
  __shared__ __align__(16) __nv_bfloat16 rows[kTile * kPadded];
  const TileRows tile = arguments.rows[blockIdx.x];
  const int head = blockIdx.y, half = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  const float4* const from =
      sums + ((int64_t{head} * arguments.tiles + blockIdx.x) * 2 + half) * kParts * kWarpgroup + thread;
  const int row = thread / 32 * 16 + thread % 32 / 4 + (kTile == 128 ? half * 64 : 0);
  const int column = thread % 4 * 2 + (kTile == 64 ? half * 64 : 0);
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const float4 sum = __ldcs(from + i * kWarpgroup);
    __nv_bfloat16* const to = rows + row * kPadded + column + 8 * i;
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum.x * scale, sum.y * scale);
    *reinterpret_cast<__nv_bfloat162*>(to + 8 * kPadded) =
        __floats2bfloat162_rn(sum.z * scale, sum.w * scale);
  }
  __syncthreads();
  constexpr int kChunks = kDim / kElements;
  for (int i = threadIdx.x; i < tile.rows * kChunks; i += kThreads) {
    const int r = i / kChunks, c = i % kChunks * kElements;
    store_pack(dq + (tile.token + r) * stride + head * kDim + c,
               load_pack<__nv_bfloat16, kElements>(rows + r * kPadded + c));
  }
}

}  // namespace

void prepare_rows(const RowArguments& arguments, const ForwardLogs& forward, const __nv_bfloat16* y,
                  const __nv_bfloat16* dy, float* logs, float* deltas, cudaStream_t stream) {
  const dim3 blocks(arguments.tiles, arguments.heads);
  const auto kernel = arguments.head_dim == 64 ? prepare<64> : prepare<128>;
  kernel<<<blocks, kThreads, 0, stream>>>(arguments, forward, y, dy, logs, deltas);
}

void finish_rows(const RowArguments& arguments, const float* sums, float scale, __nv_bfloat16* dq,
                 int64_t stride, cudaStream_t stream) {
  const dim3 blocks(arguments.tiles, arguments.heads);
  const auto kernel = arguments.head_dim == 64 ? finish<64> : finish<128>;
  kernel<<<blocks, kThreads, 0, stream>>>(arguments, reinterpret_cast<const float4*>(sums), scale, dq,
                                          stride);
}

}  // namespace temper::backends::hopper
