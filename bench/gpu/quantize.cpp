#include <cstdio>

#include "bench/arguments.h"
#include "bench/gpu/gpu_bench.h"
#include "bench/gpu/timing.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "primitives/amax.h"
#include "quant/number_format.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Fake quantization on a GPU: all experts of a weight in one launch, forward and backward, and the amax of
weights and inputs, and the time of a device-to-device copy of the same bytes in the same run. bfloat16;
timing.h says how times are taken.
  temper_bench_quantize [--experts N --rows N --columns N]
Without sizes: experts of two published mixtures, and inputs of a linear.
)";

using ops::FakeQuantize;

constexpr DType kBrain = DType::kBF16;

struct Sizes {
  int64_t experts = 0, rows = 0, columns = 0;
};

class Bench : public GpuBench {
 public:
  Bench() : GpuBench{detect_hardware("cuda")} { copy_speed = measured_copy(device()); }

  void weights(const Sizes& s) const {
    begin(fmt::format("{} x [{}, {}]", s.experts, s.rows, s.columns));
    const Tensor x = random_values(device(), {s.experts, s.rows, s.columns}, kBrain, 0.02f);
    forward("fp8, each expert", "fp8", x, {s.experts, 1, 1});
    forward("fp8, channels", "fp8", x, {s.experts, s.rows, 1});
    forward("fp8_e5m2, each expert", "fp8_e5m2", x, {s.experts, 1, 1});
    forward("int8, channels", "int8", x, {s.experts, s.rows, 1});
    if (s.columns % 128 == 0) forward("int4, blocks of 128", "int4", x, {s.experts, s.rows, s.columns / 128});
    if (s.columns % 128 == 0 && s.rows % 128 == 0)
      forward("fp8, tiles of 128 x 128", "fp8", x, {s.experts, s.rows / 128, s.columns / 128});
    forward("int8 with zero points, channels", "int8", x, {s.experts, s.rows, 1}, true);
    if (s.columns % 128 == 0)
      forward("int4 with zero points, blocks of 128", "int4", x, {s.experts, s.rows, s.columns / 128}, true);
    forward("nvfp4", "nvfp4", x, {s.experts, 1, 1});
    for (const char* name : {"mxfp8", "mxfp6", "mxfp4", "mxint8"}) forward(name, name, x, {});
    backward(x, {s.experts, 1, 1}, kBrain);
    backward(x, {s.experts, s.rows, 1}, kBrain);
    backward(x, {s.experts, 1, 1}, DType::kF32);
    amax(x, {s.experts, 1, 1}, "each expert");
    amax(x, {s.experts, s.rows, 1}, "channels");
  }

  void inputs(int64_t tokens, int64_t columns) const {
    begin(fmt::format("inputs [{}, {}]", tokens, columns));
    const Tensor x = random_values(device(), {tokens, columns}, kBrain);
    forward("fp8, all tokens", "fp8", x, {1, 1});
    forward("fp8, each token", "fp8", x, {tokens, 1});
    forward("int8 with zero points, each token", "int8", x, {tokens, 1}, true);
    forward("nvfp4", "nvfp4", x, {1, 1});
    amax(x, {1, 1}, "all tokens");
    amax(x, {tokens, 1}, "each token");
    report("largest and least values, each token", 2.0 * static_cast<double>(x.bytes()), [&] {
      primitives::amax_of(x, {tokens, 1}, quant::Extreme::kHigh);
      primitives::amax_of(x, {tokens, 1}, quant::Extreme::kLow);
    });
  }

 private:
  void begin(const std::string& title) const {
    std::printf("\n%s\n| kernel | time | a copy's | of the copy |\n|---|---|---|---|\n", title.c_str());
  }

  void report(const std::string& name, double bytes, const std::function<void()>& run) const {
    const double seconds = median_seconds(device(), {run}), limit = bytes / copy_speed;
    std::printf("| %-40s | %8.4f ms | %8.4f ms | %5.1f %% |\n", name.c_str(), seconds * 1e3, limit * 1e3,
                100 * limit / seconds);
  }

  // `groups` with no dimensions: the format needs no amax.
  void forward(const std::string& name, const char* format_name, const Tensor& x, const Shape& groups,
               bool zero_points = false) const {
    quant::Format format = quant::format_named(format_name);
    if (zero_points) format = quant::by_zero_points(format.element);
    const Tensor amax = groups.ndim() > 0 ? primitives::amax_of(x, groups) : Tensor(),
                 low = zero_points ? primitives::amax_of(x, groups, quant::Extreme::kLow) : Tensor();
    const auto ops = bind<FakeQuantize>({kBrain, format});
    const auto& kernel = ops.get<FakeQuantize>();
    report(name, 2.0 * static_cast<double>(x.bytes()), [&] {
      kernel.forward({x, amax, format, {}, {}, low});
    });
  }

  void backward(const Tensor& x, const Shape& groups, DType grads) const {
    const quant::Format& format = quant::format_named("fp8");
    const Tensor amax = primitives::amax_of(x, groups), dy = random_values(device(), x.shape(), grads);
    const auto ops = bind<FakeQuantize>({kBrain, format});
    const auto& kernel = ops.get<FakeQuantize>();
    report(fmt::format("clipped gradient, {}, amax {}", to_string(grads), to_string(groups)),
           static_cast<double>(x.bytes()), [&] {
             kernel.backward({x, amax, format}, dy);
           });
  }

  void amax(const Tensor& x, const Shape& groups, const std::string& name) const {
    report("amax, " + name, static_cast<double>(x.bytes()), [&] { primitives::amax_of(x, groups); });
  }
};

int run(int argc, char** argv) {
  Sizes sizes;
  std::string no_name;
  BenchArguments arguments(argc, argv, no_name);
  while (arguments.next())
    if (!(arguments.take("--experts", sizes.experts) || arguments.take("--rows", sizes.rows) ||
          arguments.take("--columns", sizes.columns)))
      arguments.refuse();
  const Bench bench;
  std::printf("%s; a copy moves %.2f TB/s\n", bench.facts.name.c_str(), bench.copy_speed * 1e-12);
  if (sizes.experts * sizes.rows * sizes.columns > 0) {
    bench.weights(sizes);
    return 0;
  }
  bench.weights({32, 5120, 8192});
  bench.weights({128, 2048, 768});
  bench.inputs(16384, 4096);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_quantize", temper::kUsage, temper::run, argc, argv);
}
