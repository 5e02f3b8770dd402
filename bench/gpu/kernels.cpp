#include <cstdlib>
#include <functional>

#include "backends/cublaslt/softmax_rows.h"
#include "bench/arguments.h"
#include "bench/gpu/gpu_bench.h"
#include "bench/gpu/timing.h"
#include "bench/shapes.h"
#include "ops/adamw/adamw.h"
#include "ops/global_norm/global_norm.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"
#include "primitives/quantized.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Kernels that are bound by memory, in the sizes of a known shape's training step: the bytes that must move,
each read or written once, over the time, as a share of the speed of a device-to-device copy in the same
run.
  temper_bench_kernels [SHAPE] [TOKENS]
bfloat16 throughout; timing.h says how times are taken.
)";

constexpr int kSets = 3;
constexpr DType kBrain = DType::kBF16;

struct Bench : GpuBench {
  BenchShape shape;
  int64_t tokens;
};

Tensor values(const Bench& bench, const Shape& shape, DType dtype = kBrain, float scale = 1, float mean = 0) {
  return random_values(bench.device(), shape, dtype, scale, mean);
}

using Run = std::function<void()>;

// `make` gives one set of tensors and what is run on them.
void report(const Bench& bench, const char* name, double bytes, const std::function<Run()>& make) {
  std::vector<Run> sets;
  for (int i = 0; i < kSets; ++i) sets.push_back(make());
  const double seconds = median_seconds(bench.device(), sets), speed = bytes / seconds;
  std::printf("| %-44s | %8.1f us | %5.2f TB/s | %5.1f %% |\n", name, seconds * 1e6, speed * 1e-12,
              100 * speed / bench.copy_speed);
}

void norms(const Bench& bench) {
  const int64_t hidden = bench.shape.hidden;
  const auto ops = bench.bind<ops::RmsNorm>({kBrain, hidden});
  const auto& kernel = ops.get<ops::RmsNorm>();
  const Shape shape{bench.tokens, hidden};
  const auto pass = static_cast<double>(shape.numel() * size_of(kBrain));
  const Tensor weight = values(bench, {hidden}, kBrain, 0.1f, 1);
  report(bench, "norm with residual, forward", 4 * pass, [&]() -> Run {
    return [&, op = ops::RmsNorm{values(bench, shape), values(bench, shape), weight}] { kernel.forward(op); };
  });
  report(bench, "norm with residual, backward", 4 * pass, [&]() -> Run {
    const ops::RmsNorm op{values(bench, shape), {}, weight};
    const Tensor dweight = Tensor::zeros({hidden}, kBrain, MemoryTag::kGradients, bench.device());
    return [&, op, inv_rms = kernel.forward(op).inv_rms, dy = values(bench, shape),
            dsum = values(bench, shape), dweight] {
      kernel.backward(op, inv_rms, dy, dsum, {dweight, false});
    };
  });
}

// The largest weight of a layer.
void dequantize(const Bench& bench) {
  const Shape shape{2 * bench.shape.inner, bench.shape.hidden};
  const auto count = static_cast<double>(shape.numel());
  report(bench, "a weight in 8 bits, to bfloat16", 3 * count, [&]() -> Run {
    const Tensor codes = Tensor::zeros(shape, DType::kF8E4M3, MemoryTag::kData, bench.device());
    return [codes, scales = values(bench, {shape[0]}, DType::kF32)] {
      primitives::dequantized(codes, scales, kBrain);
    };
  });
}

void rotary(const Bench& bench) {
  const auto& s = bench.shape;
  const auto ops = bench.bind<ops::Rotary>({kBrain, s.head_dim, true});
  const auto& kernel = ops.get<ops::Rotary>();
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < bench.tokens; ++t) positions.push_back(static_cast<int32_t>(t % 4096));
  ops::Rotary common;
  common.heads = s.heads;
  common.kv_heads = s.kv_heads;
  common.q_weight = common.k_weight = values(bench, {s.head_dim}, kBrain, 0.1f, 1);
  common.positions = Tensor::from(positions).on(bench.device());
  common.cos = common.sin = values(bench, {4096, s.head_dim / 2}, DType::kF32, 0.5f);
  const auto make = [&] {
    ops::Rotary op = common;
    op.qkv = values(bench, {bench.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim});
    return op;
  };
  const double head = static_cast<double>(bench.tokens * s.head_dim * size_of(kBrain)),
               normed = static_cast<double>(s.heads + s.kv_heads) * head,
               copied = static_cast<double>(s.kv_heads) * head;
  report(bench, "rotary with head norms, forward", 2 * normed,
         [&]() -> Run { return [&, op = make()] { kernel.forward(op); }; });
  report(bench, "rotary with head norms, backward", 3 * normed + 2 * copied, [&]() -> Run {
    const ops::Rotary op = make();
    const auto grad = [&](int64_t heads) { return values(bench, {bench.tokens, heads, s.head_dim}); };
    const Tensor dweights = Tensor::zeros({s.head_dim}, kBrain, MemoryTag::kGradients, bench.device());
    return [&, op, inv_rms = kernel.forward(op).inv_rms, dq = grad(s.heads), dk = grad(s.kv_heads),
            dv = grad(s.kv_heads), dweights] {
      kernel.backward(op, inv_rms, dq, dk, dv, {dweights, false}, {dweights, true});
    };
  });
}

void swiglu(const Bench& bench) {
  const int64_t inner = bench.shape.inner;
  const auto ops = bench.bind<ops::Swiglu>({kBrain, inner});
  const auto& kernel = ops.get<ops::Swiglu>();
  const Shape two{bench.tokens, 2 * inner}, one{bench.tokens, inner};
  const auto pass = static_cast<double>(one.numel() * size_of(kBrain));
  report(bench, "swiglu, forward", 3 * pass,
         [&]() -> Run { return [&, op = ops::Swiglu{values(bench, two)}] { kernel.forward(op); }; });
  report(bench, "swiglu, backward", 5 * pass, [&]() -> Run {
    return
        [&, op = ops::Swiglu{values(bench, two)}, dy = values(bench, one)] { kernel.backward(op, dy, {}); };
  });
  report(bench, "swiglu, backward and the product again", 6 * pass, [&]() -> Run {
    return
        [&, op = ops::Swiglu{values(bench, two)}, dy = values(bench, one)] { kernel.backward(op, dy, dy); };
  });
}

void cross_entropy(const Bench& bench) {
  const int64_t vocab = bench.shape.vocab, rows = std::min<int64_t>(bench.tokens, 4096);
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>(i * 7919 % vocab));
  const Tensor on_device = Tensor::from(targets).on(bench.device());
  const Tensor nll = Tensor::empty({rows}, DType::kF32, MemoryTag::kWorkspace, bench.device());
  const Tensor scale = Tensor::from(std::vector<float>{1.0f / static_cast<float>(rows)}).on(bench.device());
  const Shape shape{rows, vocab};
  report(bench, "cross entropy, loss and gradient in place",
         2.0 * static_cast<double>(shape.numel() * size_of(kBrain)), [&]() -> Run {
           return [=, logits = values(bench, shape)] {
             backends::softmax_rows({.logits = logits,
                                     .targets = on_device,
                                     .places = {},
                                     .nll = nll,
                                     .z = {},
                                     .token_factors = {},
                                     .scale = scale,
                                     .z_loss = 0,
                                     .differentiate = true});
           };
         });
}

// Matrices of a layer's size and small vectors between them, as a model has them.
void update(const Bench& bench) {
  const auto& s = bench.shape;
  const auto adamw_ops = bench.bind<ops::AdamW>({kBrain, false, kBrain, kBrain});
  const auto norm_ops = bench.bind<ops::GlobalNorm>({kBrain});
  ops::AdamW op;
  op.lr = 1e-5f;
  op.max_grad_norm = 1;
  ops::GlobalNorm grads;
  grads.device = bench.device();
  int64_t elements = 0;
  while (elements < 256 << 20)
    for (const Shape& shape : {Shape{2 * s.inner, s.hidden}, Shape{s.hidden}}) {
      const auto make = [&](float scale) { return values(bench, shape, kBrain, scale); };
      op.slots.push_back({make(0.02f),
                          {},
                          make(1e-3f),
                          make(1e-4f),
                          Tensor::zeros(shape, kBrain, MemoryTag::kOptimizer, bench.device()),
                          0.1f});
      grads.grads.push_back(op.slots.back().grad);
      elements += shape.numel();
    }
  op.grad_norm = global_norm(norm_ops, grads);
  const auto count = static_cast<double>(elements);
  report(bench, "global norm of gradients", 2 * count,
         [&]() -> Run { return [&] { global_norm(norm_ops, grads); }; });
  report(bench, "AdamW, all state bfloat16, stochastic rounding", 14 * count,
         [&]() -> Run { return [&] { adamw(adamw_ops, op); }; });
}

int run(int argc, char** argv) {
  std::vector<std::string> words;
  for (BenchArguments arguments(argc, argv, words); arguments.next();) arguments.refuse();
  Bench bench{{detect_hardware("cuda")},
              bench_shape(words.empty() ? "qwen3-0.6b" : words[0]),
              words.size() > 1 ? std::atoll(words[1].c_str()) : 16384};
  if (bench.tokens < 1) fail("'{}' is not a number of tokens", words[1]);
  bench.copy_speed = measured_copy(bench.device());
  std::printf("%s, %s, %lld tokens; a copy moves %.2f TB/s\n\n", bench.facts.name.c_str(), bench.shape.name,
              static_cast<long long>(bench.tokens), bench.copy_speed * 1e-12);
  std::printf("| kernel | time | speed | of the copy |\n|---|---|---|---|\n");
  for (const auto& part : {norms, dequantize, rotary, swiglu, cross_entropy, update}) part(bench);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_kernels", temper::kUsage, temper::run, argc, argv);
}
