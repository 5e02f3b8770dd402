#include "backends/peak.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "base/parts/registry.h"
#include "base/threads/threads.h"

namespace temper::backends {

double best_of_runs(int enough, const std::function<double()>& run) {
  constexpr double kSeconds = 0.25, kMore = 1.01;
  double best = 0;
  const double start = seconds_now();
  for (int in_vain = 0; in_vain < enough && seconds_now() - start < kSeconds;) {
    const double found = run();
    in_vain = found > kMore * best ? 0 : in_vain + 1;
    best = std::max(best, found);
  }
  return best;
}

double measured_matmul_peak(DType dtype, int threads) {
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("[peak] dtype is {}, needs float32 or bfloat16", to_string(dtype));
  static std::mutex mutex;
  static std::map<std::pair<DType, int>, double> measured;
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = measured.try_emplace({dtype, threads}, 0);
  double& best = entry->second;
  if (!fresh) return best;
  for (const PeakProbe::Kind kind : {PeakProbe::Kind::kRegisters, PeakProbe::Kind::kProducts}) {
    if (best > 0) break;
    for (const auto& [name, probe] : registry<PeakProbe>().entries())
      if (probe.kind == kind) best = std::max(best, probe.measure(dtype, threads));
  }
  return best;
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
