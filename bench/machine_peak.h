#pragma once
#include <algorithm>
#include <vector>

#include "backends/peak.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/threads/threads.h"
#include "device/transfer.h"
#include "ops/linear/linear.h"
#include "reports/profile.h"

// What the machine at hand reaches in this run: fractions that benchmarks print are of it, on every device.
namespace temper {

// Numbers from -1 to 1 on a device; of a large tensor the same million over and over, which costs no time to
// make. They are no zeros: what products reach depends on the power that their bits take.
inline Tensor device_values(const HardwareFacts& facts, const Shape& shape, DType dtype) {
  static const std::vector<float> period = [] {
    const Random random(1, RandomPurpose::kData);
    std::vector<float> numbers((1 << 20) - 8);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(2 * random.uniform(i) - 1);
    return numbers;
  }();
  const int64_t count = std::min(shape.numel(), static_cast<int64_t>(period.size()));
  const std::vector<float> numbers(period.begin(), period.begin() + count);
  const Tensor some = Tensor::from(numbers).to(dtype).on(facts.device);
  const Tensor all = Tensor::empty(shape, dtype, MemoryTag::kData, facts.device);
  auto* const to = static_cast<std::byte*>(all.raw());
  transfer(to, facts.device, some.raw(), facts.device, some.bytes());
  for (int64_t done = some.bytes(); done < all.bytes(); done *= 2)
    transfer(to + done, facts.device, to, facts.device, std::min(done, all.bytes() - done));
  return all;
}

// Of one run, with several in a row, so that the next is always waiting for the device.
inline double median_device_seconds(Device device, const std::function<void()>& run) {
  constexpr int kInRow = 8, kRows = 5;
  run();
  std::vector<double> seconds;
  for (int row = 0; row < kRows; ++row) {
    synchronize(device);
    const double start = seconds_now();
    for (int i = 0; i < kInRow; ++i) run();
    synchronize(device);
    seconds.push_back((seconds_now() - start) / kInRow);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRows / 2];
}

// Floating-point operations per second of a large product by the hardware's default kernel.
inline double measured_products(const HardwareFacts& facts, DType dtype) {
  if (facts.device.type == DeviceType::kCpu) return backends::measured_matmul_peak(dtype, num_threads());
  constexpr int64_t kSize = 8192;
  ops::Binder binder({}, facts);
  binder.bind<ops::Linear>({{dtype, kSize, kSize, false}});
  const ops::BoundOps bound = binder.finish();
  const Tensor x = device_values(facts, {kSize, kSize}, dtype),
               weight = device_values(facts, {kSize, kSize}, dtype);
  const double seconds = median_device_seconds(facts.device, [&] {
    Tape tape(false);
    linear(tape, bound, tape.constant(x), tape.constant(weight));
  });
  return 2.0 * kSize * kSize * kSize / seconds;
}

// Bytes per second that a copy within the device's memory reads and writes together.
inline double measured_copy(const HardwareFacts& facts) {
  if (facts.device.type == DeviceType::kCpu) return backends::measured_memory_bandwidth(num_threads());
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Tensor from = device_values(facts, {kBytes / 4}, DType::kF32),
               to = Tensor::empty({kBytes / 4}, DType::kF32, MemoryTag::kData, facts.device);
  const double seconds = median_device_seconds(
      facts.device, [&] { transfer(to.raw(), facts.device, from.raw(), facts.device, kBytes); });
  return 2.0 * kBytes / seconds;
}

inline reports::MachinePeak measured_peak(const HardwareFacts& facts, DType dtype) {
  return {measured_products(facts, dtype), measured_copy(facts)};
}

}  // namespace temper
