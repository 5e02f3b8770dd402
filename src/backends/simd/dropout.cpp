#include <algorithm>

#include "backends/floats.h"
#include "base/threads/threads.h"
#include "ops/dropout/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/dropout.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

constexpr int64_t kBlock = 512;  // elements whose random words are made together
constexpr int64_t kOfCounter = 4;
constexpr int64_t kRoom = kOfCounter * (2 + static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint64_t>())));

template <class T>
void drop_in(const ops::Dropout& op, const T* x, T* y, int64_t begin, int64_t end) {
  const Philox<> philox(Random(op.key.seed, RandomPurpose::kDropout, op.key.step));
  const Lanes factor = fill(op.factor());
  const auto threshold = hn::Set(Words(), op.threshold());
  HWY_ALIGN uint32_t words[kBlock + kRoom];
  const int64_t piece = op.piece();
  for (int64_t first = begin, count = 0; first < end; first += count) {
    const int64_t row = first / piece, column = first % piece;
    count = std::min({kBlock, end - first, piece - column});
    const int64_t n = op.key.first + row * op.key.columns + column, skipped = n % kOfCounter;
    philox.fill((op.key.stream << 44) + static_cast<uint64_t>(n / kOfCounter),
                (skipped + count + kOfCounter - 1) / kOfCounter, words);
    sweep(count, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto dropped = hn::Lt(hn::LoadU(Words(), words + skipped + i), threshold);
      const Lanes scaled = hn::Mul(load(x + first + i, lanes), factor);
      store(hn::IfThenZeroElse(hn::RebindMask(Floats(), dropped), scaled), y + first + i, lanes);
    });
  }
}

void drop(const ops::Dropout& op, const Tensor& y, int64_t begin, int64_t end) {
  visit_wide(y.dtype(), [&]<class T>() { drop_in(op, op.x.data<T>(), y.data<T>(), begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::Dropout;
HWY_EXPORT(drop);

Tensor forward(const Dropout& op) {
  const Tensor y = Tensor::empty(op.x.shape(), op.x.dtype());
  parallel_ranges(y.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(drop)(op, y, begin, end);
  });
  return y;
}

}  // namespace

void register_simd_dropout() {
  ops::kernels<Dropout>().add("simd", {.accepts = refuse_float16, .forward = forward});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
