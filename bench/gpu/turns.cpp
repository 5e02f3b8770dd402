#include <chrono>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "bench/arguments.h"
#include "bench/gpu/gpu_bench.h"
#include "bench/gpu/timing.h"
#include "device/memory_turn.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(How long regions of a GPU's memory sleep and wake when a rollout and updates take turns
(device/memory_turn.h): the optimizer's state, which is kept in the CPU's memory, and a rollout's cache,
which is dropped.
  temper_bench_turns [--state GIB] [--cache GIB] [--turns N]
The defaults are those of a model of 8.2 billion parameters: 12 bytes for each of them.
)";

constexpr double kGib = 1 << 30;

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Blocks of one region, none of which a transfer has at once.
std::vector<Tensor> blocks(Device device, int64_t gib, MemoryTag tag) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < gib * 4; ++i)
    all.push_back(Tensor::zeros({int64_t{1} << 28}, DType::kU8, tag, device));
  return all;
}

void report(Device device, const char* name, MemoryTag tag, PauseMode mode, int64_t gib, int64_t turns) {
  const std::vector<Tensor> memory = blocks(device, gib, tag);
  device::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::optional<MemoryTurn> sleeping;
    const double sleep = seconds_of([&] {
      sleeping.emplace(device, "a rollout", std::vector<Sleeper>{{tag, mode}});
    });
    const double wake = seconds_of([&] { sleeping->wake(); });
    const double bytes = static_cast<double>(gib) * kGib * 1e-9;
    std::printf("| %-26s | %3lld | %7.3f s | %7.3f s | %6.1f | %6.1f |\n", name,
                static_cast<long long>(turn + 1), sleep, wake, bytes / sleep, bytes / wake);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  int64_t state = 91, cache = 60, turns = 4;
  std::string no_name;
  BenchArguments arguments(argc, argv, no_name);
  while (arguments.next())
    if (!(arguments.take("--state", state) || arguments.take("--cache", cache) ||
          arguments.take("--turns", turns)))
      arguments.refuse();
  const Device device = detect_hardware("cuda").device;
  std::printf("| region | turn | sleep | wake | GB/s | GB/s |\n|---|---|---|---|---|---|\n");
  report(device, "optimizer, kept", MemoryTag::kOptimizer, PauseMode::kKeep, state, turns);
  report(device, "cache, dropped", MemoryTag::kKvCache, PauseMode::kDrop, cache, turns);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_turns", temper::kUsage, temper::run, argc, argv);
}
