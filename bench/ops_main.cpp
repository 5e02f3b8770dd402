// Speed of every kernel of every op on the CPU, from the demo's sizes to those of an 8B model.
//   temper_bench_ops [--benchmark_filter=linear/onednn] [--benchmark_out=FILE --benchmark_out_format=json]
#include <benchmark/benchmark.h>

#include <cstdio>

#include "backends/peak.h"
#include "base/pinning.h"
#include "base/threads.h"
#include "bench/ops.h"
#include "startup.h"

namespace temper::bench {
namespace {

// One line each that fits a terminal; the library's own table is wider than that.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    const int threads = num_threads();
    std::printf(
        "peak with %d threads: products %.0f GFLOP/s in float32, %.0f in bfloat16; memory %.1f GB/s\n",
        threads, backends::measured_matmul_peak(DType::kF32, threads) / 1e9,
        backends::measured_matmul_peak(DType::kBF16, threads) / 1e9,
        backends::measured_memory_bandwidth(threads) / 1e9);
    std::printf("%-62s %9s %8s %7s  %s\n", "op/kernel/dtype/size/pass", "best ms", "GFLOP/s", "GB/s",
                "of peak");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto counter = [&](const char* name) {
        const auto found = run.counters.find(name);
        return found == run.counters.end() ? 0 : found->second.value;
      };
      // The library adds how it was timed.
      const std::string name = run.benchmark_name().substr(0, run.benchmark_name().find("/min_time"));
      const double gflops = counter("GFLOP/s");
      std::printf("%-62s %9.4f %8s %7.1f %5.0f %% of %s\n", name.c_str(), counter("best_ms"),
                  gflops > 0 ? fmt::format("{:.1f}", gflops).c_str() : "-", counter("GB/s"),
                  100 * counter("of_peak"), run.report_label.c_str());
    }
    std::fflush(stdout);
  }
};

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper::bench;
  temper::register_everything();
  add_linear();
  add_lora_linear();
  add_dropout();
  add_attention();
  add_cross_entropy();
  add_embedding();
  add_rms_norm();
  add_residual_norm();
  add_rotary();
  add_swiglu();
  add_adamw();
  add_global_norm();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  temper::pin_threads(temper::Pinning::kAuto);  // as a run does: its small ops would wait for time slices
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  return 0;
}
