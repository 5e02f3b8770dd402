// A stable sort by counting. A block has the same choices in both passes: it counts those of each expert, one
// block adds up the counts of all, and each block then places its choices.
#include "backends/gpu/expert_plan.h"

#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

constexpr int kChoices = 512, kWarps = kChoices / 32;  // of a block, one for each thread
constexpr int kMost = static_cast<int>(kMostExperts);
static_assert(kWarps * kMost * sizeof(uint16_t) <= 48 * 1024, "the counts of a block's warps fit");

__global__ void __launch_bounds__(kChoices) count(const int* ids, int rows, int experts, int* counts) {
  __shared__ int own[kMost];
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kChoices) own[e] = 0;
  __syncthreads();
  const int choice = static_cast<int>(blockIdx.x) * kChoices + static_cast<int>(threadIdx.x);
  if (choice < rows) atomicAdd(own + ids[choice], 1);  // integers: any order gives the same
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kChoices)
    counts[static_cast<int>(blockIdx.x) * experts + e] = own[e];
}

// A thread has an expert. Counts become what the blocks before have; starts the rows of the experts before.
__global__ void __launch_bounds__(kMost) add_up(int* counts, int blocks, int experts, int* starts) {
  __shared__ int sums[kMost / 32];
  const int expert = static_cast<int>(threadIdx.x), lane = expert % 32;
  int total = 0;
  constexpr int kAtOnce = 16;  // loads under way
  if (expert < experts)
    for (int first = 0; first < blocks; first += kAtOnce) {
      int own[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        own[i] = first + i < blocks ? counts[(first + i) * experts + expert] : 0;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < blocks) counts[(first + i) * experts + expert] = total;
        total += own[i];
      }
    }
  int before = total;  // and this one
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) sums[expert / 32] = before;
  __syncthreads();
  for (int warp = 0; warp < expert / 32; ++warp) before += sums[warp];
  if (expert < experts) {
    starts[expert + 1] = before;
    if (expert == 0) starts[0] = 0;
  }
}

// The lists of a plan, without its starts.
struct Lists {
  int *places, *choices, *tokens;
};

__global__ void __launch_bounds__(kChoices)
    place(const int* ids, int rows, int experts, int top_k, const int* starts, const int* counts, Lists lists) {
  __shared__ uint16_t before[kWarps][kMost];  // of a warp: choices of the expert in it, then in those before
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  for (int i = thread; i < kWarps * experts; i += kChoices) before[i / experts][i % experts] = 0;
  __syncthreads();
  const int choice = static_cast<int>(blockIdx.x) * kChoices + thread;
  const int expert = choice < rows ? ids[choice] : -1;
  const unsigned same = __match_any_sync(0xffffffffu, expert), lower = same & ((1u << thread % 32) - 1);
  if (expert >= 0 && lower == 0) before[warp][expert] = static_cast<uint16_t>(__popc(same));
  __syncthreads();
  for (int e = thread; e < experts; e += kChoices) {
    int sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      const int own = before[w][e];
      before[w][e] = static_cast<uint16_t>(sum);
      sum += own;
    }
  }
  __syncthreads();
  if (expert < 0) return;
  const int row = starts[expert] + counts[static_cast<int>(blockIdx.x) * experts + expert] +
                  before[warp][expert] + __popc(lower);
  lists.places[choice] = row;
  lists.choices[row] = choice;
  lists.tokens[row] = choice / top_k;
}

}  // namespace

ExpertPlan plan_experts(const Tensor& ids, int64_t experts) {
  invariant(experts <= kMostExperts, "a block has a thread for each expert");
  const Device device = ids.device();
  const int64_t rows = ids.numel(), blocks = (rows + kChoices - 1) / kChoices;
  const auto integers = [&](int64_t count, MemoryTag tag) {
    return Tensor::empty({count}, DType::kI32, tag, device);
  };
  const ExpertPlan plan{integers(3 * rows + experts + 1, MemoryTag::kActivations), rows, experts};
  const Tensor counts = integers(blocks * experts, MemoryTag::kWorkspace);
  if (only_counts(device)) return plan;
  const cudaStream_t stream = device::stream(device);
  const int* const chosen = ids.data<int32_t>();
  const int row_count = static_cast<int>(rows), expert_count = static_cast<int>(experts),
            block_count = static_cast<int>(blocks), top_k = static_cast<int>(ids.dim(1));
  int* const sums = counts.data<int32_t>();
  if (blocks > 0) count<<<block_count, kChoices, 0, stream>>>(chosen, row_count, expert_count, sums);
  add_up<<<1, kMost, 0, stream>>>(sums, block_count, expert_count, plan.starts());
  if (blocks > 0)
    place<<<block_count, kChoices, 0, stream>>>(chosen, row_count, expert_count, top_k, plan.starts(), sums,
                                                Lists{plan.places(), plan.choices(), plan.tokens()});
  device::check_launch("plan_experts");
  return plan;
}

}  // namespace temper::backends
