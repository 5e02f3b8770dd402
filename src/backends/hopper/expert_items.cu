#include "backends/hopper/expert_items.h"

#include "backends/gpu/device_code.h"

namespace temper::backends::hopper {
namespace {

constexpr int kMost = static_cast<int>(kMostExperts), kColumns = 8;  // of which a tile's rows are a multiple

// Of all threads before this one, and this one; `warps` holds a number for each warp.
__device__ int sum_to(int value, int* warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, value, step);
    if (lane >= step) value += other;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = value;
  __syncthreads();
  for (int before = 0; before < warp; ++before) value += warps[before];
  return value;
}

// A thread has an expert.
__global__ void __launch_bounds__(kMost) write_items(const int* starts, int experts, ExpertItems* to) {
  __shared__ int warps[kMost / 32];
  const int expert = static_cast<int>(threadIdx.x);
  const int begin = expert < experts ? starts[expert] : 0, end = expert < experts ? starts[expert + 1] : 0;
  const int tiles = (end - begin + kMostTokens - 1) / kMostTokens, own_pairs = tiles / 2, own_singles = tiles % 2;
  const int pairs = sum_to(own_pairs, warps) - own_pairs, singles = sum_to(own_singles, warps) - own_singles;
  const int each = tiles == 0 ? 0 : ((end - begin + tiles - 1) / tiles + kColumns - 1) / kColumns * kColumns;
  for (int i = 0; i < own_pairs + own_singles; ++i) {
    const int row = begin + 2 * i * each;
    to->items[pairs + singles + i] = {
        row, min(row + each, end), min(row + 2 * each, end), expert, pairs + i, singles, {}};
  }
  if (expert == experts - 1) {
    const int all_pairs = pairs + own_pairs, all_singles = singles + own_singles;
    to->count = all_pairs + all_singles;
    to->items[all_pairs + all_singles] = {end, end, end, experts, all_pairs, all_singles, {}};
  }
}

}  // namespace

Tensor expert_items(const ExpertPlan& plan) {
  const Device device = plan.memory.device();
  const int64_t most = plan.rows / (2 * kMostTokens) + std::min(plan.experts, plan.rows) + 1,
                bytes = static_cast<int64_t>(sizeof(ExpertItems) + sizeof(ExpertItem)) * 1 +
                        most * static_cast<int64_t>(sizeof(ExpertItem));
  const Tensor items = Tensor::empty({bytes}, DType::kU8, MemoryTag::kWorkspace, device);
  if (only_counts(device)) return items;
  write_items<<<1, kMost, 0, device::stream(device)>>>(plan.starts(), static_cast<int>(plan.experts),
                                                      static_cast<ExpertItems*>(items.raw()));
  device::check_launch("expert_items");
  return items;
}

}  // namespace temper::backends::hopper
