#include "ops/dropout/dropout.h"

#include <algorithm>

#include "base/random.h"
#include "base/tracing/trace.h"
#include "ops/checks.h"
#include "ops/op_info.h"
#include "primitives/primitives.h"

namespace temper::ops {
namespace {

// In float32, rounded once.
Var times(Tape& tape, const Var& x, const Tensor& factors) {
  const Var wide = primitives::cast(tape, x, DType::kF32);
  return primitives::cast(tape, primitives::mul(tape, wide, tape.constant(factors)), x.dtype());
}

Var compose(Tape& tape, const Var& x, const Dropout& op) {
  const Random random(op.key.seed, RandomPurpose::kDropout, op.key.step);
  const Tensor factors = Tensor::zeros(x.shape(), DType::kF32);
  float* out = factors.data<float>();
  for (int64_t i = 0; i < factors.numel(); ++i) {
    const int64_t row = i / std::max<int64_t>(op.piece(), 1), column = i % std::max<int64_t>(op.piece(), 1);
    const auto n = static_cast<uint64_t>(op.key.first + row * op.key.columns + column);
    const uint32_t word = random.words((op.key.stream << 44) + n / 4)[n % 4];
    out[i] = word < op.threshold() ? 0 : op.factor();
  }
  return times(tape, x, factors.on(x.value.device()));
}

}  // namespace

Var dropout(Tape& tape, Bound<Dropout> bound, const Var& x, float p, const Dropout::Key& key) {
  check_float(Dropout::kName, "x", x.value);
  check_contiguous(Dropout::kName, "x", x.value);
  if (!(p >= 0 && p < 1)) fail("[dropout] p is {}, needs 0 or more, below 1", p);
  if (key.columns != 0) check_ndim(Dropout::kName, "x", x.value, 2);
  const trace::Span span(Dropout::kName, [bytes = 2 * static_cast<double>(x.value.bytes())] {
    return trace::OpWork{{0, bytes}, {0, bytes}};
  });
  const auto& kernel = *bound;
  const Dropout op{x.value, p, key};
  if (kernel.compose != nullptr) return kernel.compose(tape, x, op);
  Var y = tape.record(kernel.forward(op), {&x}, [p, key, slot = x.slot, &kernel](const Tensor& dy) {
    slot->add(kernel.forward({dy.contiguous(), p, key}));
  });
  if (tape.rematerializes())
    y.remake = std::make_shared<Remake>([saved = x.saved(), p, key, &kernel] {
      return kernel.forward({saved.get(), p, key});
    });
  return y;
}

namespace {

Tensor outline_forward(const Dropout& op) { return empty_like(op.x, op.x.shape()); }

// Without the random numbers.
Var outline_compose(Tape& tape, const Var& x, const Dropout&) {
  return times(tape, x, empty_like(x.value, x.shape(), DType::kF32));
}

}  // namespace

Probe dropout_probe;

void register_dropout() {
  register_op<Dropout>(compose, dropout_probe, {outline_forward, nullptr, outline_compose},
                       {.cpu = {{{"simd", "simd"}}}, .gpu = {{{"cuda", "cuda"}}}});
}

}  // namespace temper::ops
