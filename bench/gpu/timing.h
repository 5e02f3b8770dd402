#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/random.h"
#include "device/cuda/stream.h"
#include "tensor/tensor.h"

// Times of work on a GPU. Each is run over several sets of tensors in turn, so that the cache does not hold
// the next one's, and a few times in a row, as in a step, where the next launch is always waiting. Medians of
// 9 such rows.
namespace temper {

inline constexpr int kInRow = 12, kTimedRows = 9;

inline void copy(Device device, void* to, const void* from, int64_t bytes) {
  device::check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, device::stream(device)),
      "cudaMemcpyAsync");
}

// Normal numbers; of a large tensor the same million over and over, which costs no time to make.
inline Tensor random_values(Device device, const Shape& shape, DType dtype, float scale = 1, float mean = 0) {
  static uint64_t seed = 0;
  const Random random(++seed, RandomPurpose::kData);
  std::vector<float> numbers(static_cast<size_t>(std::min<int64_t>(shape.numel(), (1 << 20) - 8)));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = mean + scale * static_cast<float>(random.normal(i));
  const Tensor some = Tensor::from(numbers).to(dtype).on(device);
  const Tensor all = Tensor::empty(shape, dtype, MemoryTag::kData, device);
  auto* const to = static_cast<std::byte*>(all.raw());
  copy(device, to, some.raw(), some.bytes());
  for (int64_t done = some.bytes(); done < all.bytes(); done *= 2)
    copy(device, to + done, to, std::min(done, all.bytes() - done));
  return all;
}

inline double median_seconds(Device device, const std::vector<std::function<void()>>& sets) {
  const cudaStream_t stream = device::stream(device);
  cudaEvent_t begin = nullptr, end = nullptr;
  device::check(cudaEventCreate(&begin), "cudaEventCreate");
  device::check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (const auto& run : sets) run();
  for (int row = 0; row < kTimedRows; ++row) {
    device::check(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (size_t i = 0; i < kInRow; ++i) sets[i % sets.size()]();
    device::check(cudaEventRecord(end, stream), "cudaEventRecord");
    device::check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    device::check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    times.push_back(milliseconds / kInRow);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

// Bytes read and written in a second.
inline double measured_copy(Device device) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Tensor from = Tensor::zeros({kBytes}, DType::kU8, MemoryTag::kData, device),
               to = Tensor::empty({kBytes}, DType::kU8, MemoryTag::kData, device);
  return 2.0 * kBytes / median_seconds(device, {[&] { copy(device, to.raw(), from.raw(), kBytes); }});
}

}  // namespace temper
