#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "bench/machine_peak.h"
#include "bench/ops.h"
#include "reports/profile.h"

namespace temper::bench {
namespace {

// Runs in a row on a device: the next is waiting when one ends, as in a step.
constexpr int kInRow = 12;

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
  return work.flops + work.bytes > 0 ? work : timed.work;
}

// Measured once for each dtype.
reports::MachinePeak peak_of(DType dtype) {
  static std::map<DType, reports::MachinePeak> known;
  const auto [entry, fresh] = known.try_emplace(dtype);
  if (fresh) entry->second = measured_peak(machine(), dtype);
  return entry->second;
}

// By the best of all runs: what else the machine does can only slow one down.
void measure(benchmark::State& state, DType dtype, const Timed& timed) {
  reports::ProfileLine one;  // lasting a second
  one.seconds = 1;
  one.work = work_of(timed);
  double best = std::numeric_limits<double>::max();
  const int in_row = on_cpu() ? 1 : kInRow;
  for (auto _ : state) {
    for (int i = 0; timed.before && i < in_row; ++i) timed.before();
    synchronize(machine().device);
    const double start = seconds_now();
    for (int i = 0; i < in_row; ++i) timed.run();
    synchronize(machine().device);
    const double seconds = (seconds_now() - start) / in_row;
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  reports::MachinePeak peak = peak_of(dtype);
  if (one.work.flops == 0) peak.flops = 0;
  state.counters["best_ms"] = best * 1e3;
  state.counters["GFLOP/s"] = one.work.flops / best * 1e-9;
  state.counters["GB/s"] = one.work.bytes / best * 1e-9;
  state.counters["of_peak"] = one.fraction(peak) / best;
  state.SetLabel(one.bound_by_memory(peak) ? "memory" : "products");
}

}  // namespace

HardwareFacts& machine() {
  static HardwareFacts facts = detect_cpu();
  return facts;
}

std::set<std::string, std::less<>>& measured_ops() {
  static std::set<std::string, std::less<>> names;
  return names;
}

bool on_cpu() { return machine().device.type == DeviceType::kCpu; }

std::vector<Size> sizes() {
  if (!on_cpu())
    return {{bench_shape("demo"), 4096, true},
            {bench_shape("small"), 8192},
            {bench_shape("qwen3-0.6b"), 16384},
            {bench_shape("qwen3-8b"), 8192}};
  return {{bench_shape("demo"), 2048, true},
          {bench_shape("small"), 1024},
          {bench_shape("qwen3-0.6b"), 512},
          {bench_shape("qwen3-8b"), 128}};
}

Tensor filled(Shape shape, DType dtype) { return device_values(machine(), shape, dtype); }

Tensor numbers(int64_t count, int64_t limit) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(i * 7919 % limit));
  return Tensor::from(values).on(machine().device);
}

Tensor zeros(const Shape& shape, DType dtype) {
  return Tensor::zeros(shape, dtype, MemoryTag::kData, machine().device);
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
  return Tensor::zeros(parameter.shape(), DType::kF32, MemoryTag::kGradients, machine().device);
}

void add(const std::string& name, DType dtype, const std::function<Timed()>& prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { measure(state, dtype, prepare()); })
      ->UseManualTime()
      ->MinTime(on_cpu() ? 0.1 : 0.02)
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
  add_backward(name + "/backward", dtype, prepare, {});
}

void add_passes_that_keep_states(const std::string& name, DType dtype,
                                 const std::function<Build()>& prepare) {
  const TapeOptions options{.keep_states = true};
  add(name + "/forward_keeping", dtype, [=] {
    const Build build = prepare();
    return Timed{[=] {
      Tape tape(options);
      build(tape);
    }};
  });
  add_backward(name + "/backward_kept", dtype, prepare, options);
}

void add_backward(const std::string& name, DType dtype, const std::function<Build()>& prepare,
                  const TapeOptions& options) {
  add(name, dtype, [=] {
    const Build build = prepare();
    Tape probe(false);
    const Tensor dy = filled(build(probe).shape(), dtype);
    struct Pass {
      explicit Pass(const TapeOptions& options) : tape(options) {}
      Tape tape;
      Var output;
    };
    const auto passes = std::make_shared<std::vector<std::unique_ptr<Pass>>>();
    return Timed{[=] {
                   passes->back()->tape.backward(passes->back()->output, dy);
                   passes->pop_back();
                 },
                 [=] {
                   passes->push_back(std::make_unique<Pass>(options));
                   passes->back()->output = build(passes->back()->tape);
                 }};
  });
}

}  // namespace temper::bench
