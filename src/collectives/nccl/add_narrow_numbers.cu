#include "collectives/nccl/add_narrow_numbers.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device/cuda/stream.h"

namespace temper::collectives {
namespace {

constexpr int kThreads = 256, kBlocksEach = 8;  // of a block; of a multiprocessor
constexpr int kTogether = 8;                    // elements of 16 bytes

__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float wide(__half x) { return __half2float(x); }
__device__ void round_into(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
__device__ void round_into(__half& to, float x) { to = __float2half_rn(x); }

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Several {
  T values[kCount];
};

// kCount elements in a thread: 8 where all addresses are those of 16 bytes, else 1.
template <class T, int kCount>
__global__ void add_numbers(NarrowNumbers numbers, T* sums) {
  using Values = Several<T, kCount>;
  const int64_t count = numbers.count / kCount, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    float all[kCount];
    for (int rank = 0; rank < numbers.ranks; ++rank) {
      const std::byte* const from =
          rank == numbers.own ? numbers.mine : numbers.received + rank * numbers.slot;
      const Values values = reinterpret_cast<const Values*>(from)[i];
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        all[k] = rank == 0 ? wide(values.values[k]) : __fadd_rn(all[k], wide(values.values[k]));
    }
    Values rounded;
#pragma unroll
    for (int k = 0; k < kCount; ++k) round_into(rounded.values[k], all[k]);
    reinterpret_cast<Values*>(sums)[i] = rounded;
  }
}

template <class T>
void launch(const NarrowNumbers& numbers, std::byte* sums, Device gpu, cudaStream_t on) {
  const auto is_even = [](const std::byte* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  const int64_t most = int64_t{kBlocksEach} * device::multiprocessors(gpu);
  const auto blocks = [&](int64_t each) {
    return static_cast<unsigned>(
        std::clamp<int64_t>((numbers.count / each + kThreads - 1) / kThreads, 1, most));
  };
  T* const to = reinterpret_cast<T*>(sums);
  const bool even =
      is_even(numbers.mine) && is_even(numbers.received) && numbers.slot % 16 == 0 && is_even(sums);
  const int64_t rest = even ? numbers.count % kTogether : numbers.count, whole = numbers.count - rest;
  if (whole > 0) add_numbers<T, kTogether><<<blocks(kTogether), kThreads, 0, on>>>(numbers, to);
  if (rest > 0) {
    NarrowNumbers tail = numbers;
    tail.mine += whole * sizeof(T);
    tail.received += whole * sizeof(T);
    tail.count = rest;
    add_numbers<T, 1><<<blocks(1), kThreads, 0, on>>>(tail, to + whole);
  }
  device::check_launch("add_narrow_numbers");
}

}  // namespace

void add_narrow_numbers(const NarrowNumbers& numbers, std::byte* sums, Device gpu, cudaStream_t on) {
  if (numbers.dtype == DType::kBF16)
    launch<__nv_bfloat16>(numbers, sums, gpu, on);
  else
    launch<__half>(numbers, sums, gpu, on);
}

}  // namespace temper::collectives
