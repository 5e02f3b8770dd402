#pragma once
#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "device/facts.h"
#include "ops/selection.h"

// What the benchmarks share. Each file registers its ops for every provider once main() has filled the lists.
namespace temper::bench {

void add_adamw();
void add_attention();
void add_cross_entropy();
void add_embedding();
void add_global_norm();
void add_dropout();
void add_linear();
void add_lora_linear();
void add_residual_norm();
void add_rms_norm();
void add_rotary();
void add_swiglu();

inline Tensor filled(Shape shape, DType dtype) {
  const Tensor wide = Tensor::empty(shape, DType::kF32);
  uint32_t state = 1;
  for (float& value : wide.values<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return wide.to(dtype);
}

inline Tensor zeroed(Shape shape) { return Tensor::zeros(shape, DType::kF32, MemoryTag::kGradients); }

// One measurement: `run` does `flops` operations on `bytes` of memory; 0 leaves a counter out.
struct Work {
  double flops = 0, bytes = 0;
  std::function<void()> run;
};

inline void add(const std::string& name, const std::function<Work()>& prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [prepare](benchmark::State& state) {
                                 const Work work = prepare();
                                 work.run();  // first touch of memory, and compilation
                                 for (auto _ : state) work.run();
                                 const auto per_second = [&](double amount) {
                                   return benchmark::Counter(amount * 1e-9,
                                                             benchmark::Counter::kIsIterationInvariantRate);
                                 };
                                 if (work.flops > 0) state.counters["GFLOP/s"] = per_second(work.flops);
                                 if (work.bytes > 0) state.counters["GB/s"] = per_second(work.bytes);
                               })
      ->UseRealTime()
      ->MinTime(0.1)
      ->Unit(benchmark::kMicrosecond);
}

// Calls add(provider, bound ops) for each provider that accepts the signature. Eager compositions are slow:
// `eager_too` keeps them out of large sizes.
template <class Op>
void for_each_provider(const typename Op::Signature& signature, bool eager_too,
                       const std::function<void(const std::string&, const ops::BoundOps&)>& add_one) {
  const HardwareFacts facts = detect_cpu();
  for (const auto& [provider, kernel] : ops::kernels<Op>().entries()) {
    const bool elsewhere = kernel.compose == nullptr && kernel.hardware != facts.hardware;
    if (elsewhere || (provider == ops::kEager && !eager_too) || kernel.accepts(signature, facts)) continue;
    ops::Binder binder({.fallback = provider}, facts);
    binder.template bind<Op>({signature});
    add_one(provider, binder.finish());
  }
}

}  // namespace temper::bench
