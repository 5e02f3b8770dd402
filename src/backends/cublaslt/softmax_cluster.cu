// A cluster of blocks holds one row in its shared memory: it comes by bulk copies while it is summed up, the blocks tell
// each other what they found, and the gradient goes back over it. Blocks wait only for those of their own cluster,
// which the GPU starts together.
#include <cooperative_groups.h>

#include "backends/cublaslt/bulk_copy.h"
#include "backends/cublaslt/softmax_row.h"

namespace temper::backends {
namespace {

constexpr int kClusterThreads = 256;
constexpr int kMostBlocks = 8;                // of a cluster that every such GPU can run
constexpr int64_t kSliceBytes = 100 << 10;    // two blocks share a multiprocessor: one reads while the other writes

// `slice` logits a block, the last of them fewer or none.
template <class T>
__global__ void __launch_bounds__(kClusterThreads, 2)
    softmax_cluster(const __grid_constant__ SoftmaxArguments<T> a, int64_t slice) {
#if __CUDA_ARCH__ >= 900
  constexpr int N = kLanes<T>, kStep = kClusterThreads * N;
  extern __shared__ int4 memory[];
  __shared__ Running of_warps[kClusterThreads / 32], of_blocks[kMostBlocks];
  __shared__ uint64_t arrived[kChunks];
  const auto cluster = cooperative_groups::this_cluster();
  const unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks();
  const int64_t row = blockIdx.x / blocks, begin = min(rank * slice, a.vocab);
  const int count = static_cast<int>(min(slice, a.vocab - begin)), chunk = (count / N + kChunks - 1) / kChunks * N;
  T* const logits = a.logits + row * a.vocab;
  T* const held = reinterpret_cast<T*>(memory);
  if (threadIdx.x == 0) send_chunks(arrived, held, logits + begin, count, chunk);
  const int target = a.targets[row];
  const bool counts = target >= 0;  // or it is a row of padding
  const float scale = counts ? a.scale_of(row) : 0.f;
  const float chosen = counts ? widen(logits[target]) : 0.f;  // before anyone overwrites it
  auto begun = cluster.barrier_arrive();       // a block may write into another one that has begun
  __syncthreads();
  Running mine = nothing();
  for (int c = 0; c < kChunks; ++c) {
    wait_for(arrived + c);
    const int end = min((c + 1) * chunk, count);
    for (int i = c * chunk + threadIdx.x * N; i < end; i += kStep) add_pack(mine, load_pack<T, N>(held + i));
  }
  mine = merge_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  cluster.barrier_wait(std::move(begun));
  __syncthreads();
  if (threadIdx.x < 32) {
    mine = merge(of_warps, kClusterThreads / 32);
    if (threadIdx.x < blocks) *cluster.map_shared_rank(of_blocks + rank, threadIdx.x) = mine;
  }
  cluster.sync();
  if (!counts) {
    if (a.differentiate) store_zeros<T, N>(logits + begin, count);
    return;
  }
  const SeenRow seen(a, merge(of_blocks, blocks));
  if (rank == 0 && threadIdx.x == 0) seen.store_losses(a, row, chosen);
  if (!a.differentiate) return;
  for (int i = threadIdx.x * N; i < count; i += kStep) {
    Pack<T, N> pack = load_pack<T, N>(held + i);
    seen.differentiate(pack, scale);
    __stcs(reinterpret_cast<int4*>(logits + begin + i), *reinterpret_cast<const int4*>(&pack));
  }
  // By the thread that has just written there.
  const int64_t place = target - begin;
  if (place >= 0 && place < count && place / N % kClusterThreads == threadIdx.x)
    logits[target] = seen.of_target<T>(chosen, scale);
#endif
}

// The fewest blocks whose slices are small enough; 0: too long a row.
int64_t blocks_of_row(int64_t bytes, Device device) {
  const int64_t most = std::min(kSliceBytes, scratch_bytes(device) - (2 << 10));
  for (int64_t blocks = 1; blocks <= kMostBlocks; blocks *= 2)
    if (bytes <= blocks * most) return blocks;
  return 0;
}

bool has_clusters(Device device) {
  int major = 0;
  device::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
                "cudaDeviceGetAttribute");
  return major >= 9;
}

template <class T>
void launch(const SoftmaxRows& op, int64_t blocks) {
  constexpr int64_t kAlign = 128 / sizeof(T);
  const int64_t slice = (op.logits.dim(1) / blocks + kAlign) / kAlign * kAlign;
  const auto bytes = static_cast<size_t>(slice) * sizeof(T);
  allow_scratch(softmax_cluster<T>, bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(op.logits.dim(0) * blocks);
  config.blockDim = kClusterThreads;
  config.dynamicSmemBytes = bytes;
  config.stream = device::stream(op.logits.device());
  config.attrs = &cluster;
  config.numAttrs = 1;
  device::check(cudaLaunchKernelEx(&config, softmax_cluster<T>, arguments_of<T>(op), slice), "softmax_cluster");
}

}  // namespace

bool softmax_by_clusters(const SoftmaxRows& op) {
  const int64_t vocab = op.logits.dim(1), bytes = vocab * size_of(op.logits.dtype());
  const int64_t blocks = bytes % 16 == 0 && is_aligned(op.logits) ? blocks_of_row(bytes, op.logits.device()) : 0;
  if (blocks == 0 || !has_clusters(op.logits.device())) return false;
  visit_device_float(op.logits.dtype(), [&]<class T>() { launch<T>(op, blocks); });
  return true;
}

}  // namespace temper::backends
