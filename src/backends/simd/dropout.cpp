#include "backends/floats.h"
#include "backends/simd/simd.h"
#include "base/random.h"
#include "base/threads.h"

namespace temper::backends {
namespace {

using ops::Dropout;

template <class T>
void drop(const Dropout& op, const T* x, T* y, int64_t begin, int64_t end) {
  const Random random(op.key.seed, RandomPurpose::kDropout, op.key.step);
  const uint32_t threshold = op.threshold();
  const float factor = op.factor();
  for (int64_t i = begin; i < end;) {
    const int64_t n = op.key.first + i;
    const auto words = random.words((op.key.stream << 44) + static_cast<uint64_t>(n / 4));
    for (auto k = static_cast<size_t>(n % 4); k < 4 && i < end; ++k, ++i)
      y[i] = words[k] < threshold ? T(0.0f) : T(static_cast<float>(x[i]) * factor);
  }
}

Tensor forward(const Dropout& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype());
  visit_wide(y.dtype(), [&]<class T>() {
    parallel_ranges(y.numel(), 1 << 14,
                    [&](int64_t begin, int64_t end) { drop(op, op.x.data<T>(), y.data<T>(), begin, end); });
  });
  return y;
}

}  // namespace

ops::Kernel<Dropout> dropout_kernel() { return {.accepts = refuse_float16, .forward = forward}; }

}  // namespace temper::backends
