#include <benchmark/benchmark.h>

#include <cstdio>

#include "base/threads/pinning.h"
#include "bench/arguments.h"
#include "bench/machine_peak.h"
#include "bench/ops.h"

namespace temper::bench {
namespace {

constexpr const char* kUsage =
    R"(Speed of every kernel of every op, from the demo's sizes to those of an 8B model, on the CPU or a GPU,
compared with what the same machine reaches in the same run: products of large matrices and a copy.
  temper_bench_ops [--device cuda] [--benchmark_filter=linear/cublaslt/bfloat16]
                   [--benchmark_out=FILE --benchmark_out_format=json]
On a GPU a time is that of several runs in a row, waited for at their end.
)";

// One line each that fits a terminal; the library's own table is wider than that.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    const std::string where =
        on_cpu() ? fmt::format("with {} threads", num_threads()) : fmt::format("of {}", machine().name);
    std::printf("measured peak %s: products %.0f GFLOP/s in float32, %.0f in bfloat16; a copy %.1f GB/s\n",
                where.c_str(), measured_products(machine(), DType::kF32) / 1e9,
                measured_products(machine(), DType::kBF16) / 1e9, measured_copy(machine()) / 1e9);
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

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own options away
  std::string device = "cpu", word;
  BenchArguments arguments(argc, argv, word);
  while (arguments.next())
    if (!arguments.take("--device", device)) arguments.refuse();
  if (!word.empty()) fail("unknown argument '{}'", word);
  machine() = detect_hardware(device);
  for (const auto& add_all :
       {add_linear, add_lora_linear, add_dropout, add_fake_quantize, add_attention, add_paged_attention,
        add_cross_entropy, add_embedding, add_rms_norm, add_residual_norm, add_rotary, add_swiglu, add_sample,
        add_adamw, add_global_norm, add_chunk_gated_delta_rule, add_delta_rows,
        add_recurrent_gated_delta_rule})
    add_all();
  add_probes();
  if (on_cpu()) pin_threads(Pinning::kAuto);  // as a run does: its small ops would wait for time slices
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  return 0;
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_ops", temper::bench::kUsage, temper::bench::run, argc, argv);
}
