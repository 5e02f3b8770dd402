#include <cstdio>

#include "bench/arguments.h"
#include "bench/gpu/timing.h"
#include "bench/ranks.h"
#include "collectives/device_group.h"
#include "collectives/launch.h"
#include "collectives/launched.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(The speed of collectives between GPUs at the sizes of expert parallelism and of shared states: bytes that
leave a GPU for others over the time, medians on the slowest rank.
  mpirun --bind-to none -n N temper_bench_collectives [--width N]
bench/gpu/collectives_torch.py measures NCCL through PyTorch with the same sizes.
)";

constexpr int64_t kTokens[] = {1024, 4096, 16384, 65536};  // rows of a rank

void report(collectives::Group& ranks, const char* name, int64_t tokens, int64_t left,
            const std::function<void()>& run, Device device) {
  double seconds = median_seconds(device, {run});
  for (const double other : ranks.gather("seconds", seconds)) seconds = std::max(seconds, other);
  if (ranks.rank() == 0)
    std::printf("| %-14s | %6lld | %8.1f | %9.1f | %6.1f |\n", name, static_cast<long long>(tokens),
                static_cast<double>(left) / (1 << 20), seconds * 1e6,
                static_cast<double>(left) * 1e-9 / seconds);
}

void measure(collectives::Group& ranks, Device device, int64_t tokens, int64_t width) {
  const int64_t n = ranks.size(), part = tokens / n;
  const Tensor rows = random_values(device, {tokens, width}, DType::kBF16);
  const int64_t left = part * width * 2 * (n - 1);  // of each collective
  const std::vector<int64_t> even(static_cast<size_t>(n), part);
  report(
      ranks, "all_to_all", tokens, left, [&] { ranks.all_to_all("rows", rows, even, even); }, device);
  const Tensor mine = rows.narrow(0, ranks.rank() * part, part);
  report(
      ranks, "all_gather", tokens, left, [&] { ranks.all_gather_into("rows", mine, rows); }, device);
  report(
      ranks, "reduce_scatter", tokens, left, [&] { ranks.reduce_scatter_into("rows", rows, mine); }, device);
  report(
      ranks, "all_reduce", tokens, 2 * left, [&] { ranks.all_reduce("rows", rows); }, device);
}

int run(int argc, char** argv) {
  int64_t width = 2048;
  std::string no_name;
  BenchArguments arguments(argc, argv, no_name);
  while (arguments.next())
    if (!arguments.take("--width", width)) arguments.refuse();
  if (!collectives::launched()) fail("mpirun starts a rank for each GPU");
  collectives::launch("mpi", {}, [&](collectives::Group& hosts) {
    const Device device = hardware_of_rank("cuda", hosts).device;
    const auto ranks = collectives::device_group(hosts, device);
    if (hosts.rank() == 0)
      std::printf("| collective | rows | MiB leave | us | GB/s |\n|---|---|---|---|---|\n");
    for (const int64_t tokens : kTokens) measure(*ranks, device, tokens, width);
  });
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_collectives", temper::kUsage, temper::run, argc, argv);
}
