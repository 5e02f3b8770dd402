#include "backends/peak.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/registry.h"
#include "base/threads.h"

namespace temper::backends {

double measured_matmul_peak(DType dtype, int threads) {
  static std::mutex mutex;
  static std::map<std::pair<DType, int>, double> measured;
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = measured.try_emplace({dtype, threads}, 0);
  if (fresh)
    for (const auto& probe : registry<PeakProbe>().entries())
      entry->second = std::max(entry->second, probe.value(dtype, threads));
  return entry->second;
}

double matmul_peak(const HardwareFacts& facts, DType dtype, int threads) {
  if (facts.device.type == DeviceType::kCpu) return measured_matmul_peak(dtype, threads);
  return dtype == DType::kBF16 ? published_bf16_peak(facts.name) : 0;
}

double measured_memory_bandwidth(int threads) {
  constexpr int64_t kBytes = int64_t{256} << 20, kGrain = int64_t{4} << 20;
  constexpr double kSeconds = 0.25;
  static std::mutex mutex;
  static std::map<int, double> measured;
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = measured.try_emplace(threads, 0);
  if (!fresh) return entry->second;
  const auto from = std::make_unique<char[]>(kBytes), to = std::make_unique<char[]>(kBytes);
  const int before = num_threads();
  set_num_threads(threads);
  const double start = seconds_now();
  for (double begun = start; begun < start + kSeconds || entry->second == 0;) {
    parallel_ranges(kBytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
    });
    const double now = seconds_now();
    entry->second = std::max(entry->second, 2 * static_cast<double>(kBytes) / (now - begun));
    begun = now;
  }
  set_num_threads(before);
  return entry->second;
}

}  // namespace temper::backends
