#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/peak.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/threads.h"
#include "bench/ops.h"
#include "reports/profile.h"

namespace temper::bench {
namespace {

// What the op says of one run, which is also the first touch of memory.
trace::Work work_of(const Timed& timed) {
  constexpr const char* kRun = "run";
  trace::start();
  if (timed.before) timed.before();
  {
    const trace::Span span(kRun);
    timed.run();
  }
  const std::vector<trace::Event> events = trace::stop();
  trace::Work work;
  for (const trace::Event& event : events) {
    if (event.begin < events.back().begin) continue;  // of `before`
    work.flops += event.work.flops;
    work.bytes += event.work.bytes;
  }
  return work;
}

// By the best of all runs: what else the machine does can only slow one down.
void measure(benchmark::State& state, DType dtype, const Timed& timed) {
  reports::ProfileLine one;  // lasting a second
  one.seconds = 1;
  one.work = work_of(timed);
  double best = std::numeric_limits<double>::max();
  for (auto _ : state) {
    if (timed.before) timed.before();
    const double start = seconds_now();
    timed.run();
    const double seconds = seconds_now() - start;
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  const int threads = num_threads();
  const reports::MachinePeak peak{one.work.flops > 0 ? backends::measured_matmul_peak(dtype, threads) : 0,
                                  backends::measured_memory_bandwidth(threads)};
  state.counters["best_ms"] = best * 1e3;
  state.counters["GFLOP/s"] = one.work.flops / best * 1e-9;
  state.counters["GB/s"] = one.work.bytes / best * 1e-9;
  state.counters["of_peak"] = one.fraction(peak) / best;
  state.SetLabel(one.bound_by_memory(peak) ? "memory" : "products");
}

}  // namespace

std::vector<Size> sizes() {
  return {{bench_shape("demo"), 2048, true},
          {bench_shape("small"), 1024},
          {bench_shape("qwen3-0.6b"), 512},
          {bench_shape("qwen3-8b"), 128}};
}

Tensor filled(Shape shape, DType dtype) {
  constexpr int64_t kPeriod = 1 << 18;
  const Tensor tensor = Tensor::empty(shape, dtype);
  const Tensor wide = Tensor::empty({std::min(kPeriod, shape.numel())}, DType::kF32);
  const Random random(1, RandomPurpose::kData, 0);
  uint64_t element = 0;
  for (float& value : wide.values<float>()) value = static_cast<float>(2 * random.uniform(element++) - 1);
  const Tensor period = wide.to(dtype);
  auto* to = static_cast<std::byte*>(tensor.raw());
  for (int64_t at = 0; at < tensor.bytes(); at += period.bytes())
    std::memcpy(to + at, period.raw(), static_cast<size_t>(std::min(period.bytes(), tensor.bytes() - at)));
  return tensor;
}

Tensor numbers(int64_t count, int64_t limit) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(i * 7919 % limit));
  return Tensor::from(values);
}

Var input(Tape& tape, const Tensor& value) {
  return tape.recording() ? tape.variable(value) : tape.constant(value);
}

Var parameter(Tape& tape, const Tensor& value, const Tensor& gradient) {
  Var var = input(tape, value);
  if (var.requires_grad()) var.slot->set_buffer(gradient);
  return var;
}

Tensor gradient_of(const Tensor& parameter) {
  return Tensor::zeros(parameter.shape(), DType::kF32, MemoryTag::kGradients);
}

void add(const std::string& name, DType dtype, const std::function<Timed()>& prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { measure(state, dtype, prepare()); })
      ->UseManualTime()
      ->MinTime(0.1)
      ->Unit(benchmark::kMillisecond);
}

void add_forward(const std::string& name, DType dtype, const std::function<Build()>& prepare) {
  add(name + "/forward", dtype, [=] {
    return Timed{[build = prepare()] {
      Tape tape(false);
      build(tape);
    }};
  });
}

void add_passes(const std::string& name, DType dtype, const std::function<Build()>& prepare) {
  add_forward(name, dtype, prepare);
  add(name + "/backward", dtype, [=] {
    const Build build = prepare();
    Tape probe(false);
    const Tensor dy = filled(build(probe).shape(), dtype);
    const auto tape = std::make_shared<Tape>();
    const auto output = std::make_shared<Var>();
    return Timed{[=] { tape->backward(*output, dy); }, [=] { *output = build(*tape); }};
  });
}

}  // namespace temper::bench
