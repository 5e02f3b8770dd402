#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/floats.h"
#include "base/threads/threads.h"
#include "ops/global_norm/global_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/global_norm.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<Doubles> load_wide(const float* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), from));
}
HWY_INLINE hn::Vec<Doubles> load_wide(const BFloat16* from) {
  const hn::Rebind<uint16_t, Doubles> halves;
  const hn::Rebind<uint32_t, Doubles> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
  return hn::PromoteTo(Doubles(), hn::BitCast(hn::Rebind<float, Doubles>(), hn::ShiftLeft<16>(bits)));
}

template <class T>
double sum_of_squares(const T* values, int64_t count) {
  const Doubles wide;
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  auto even = hn::Zero(wide), odd = even;  // two chains hide the latency of the additions
  int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto a = load_wide(values + i), b = load_wide(values + i + step);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(even, odd)));
  for (; i < count; ++i) sum += double{static_cast<float>(values[i])} * static_cast<float>(values[i]);
  return sum;
}

double piece_sum(const Tensor& grad, int64_t begin, int64_t count) {
  double sum = 0;
  visit_wide(grad.dtype(), [&]<class T>() HWY_ATTR { sum = sum_of_squares(grad.data<T>() + begin, count); });
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::GlobalNorm;
HWY_EXPORT(piece_sum);

Tensor run(const GlobalNorm& op) {
  constexpr int64_t kPiece = 1 << 15;
  struct Piece {
    const Tensor* grad;
    int64_t begin;
  };
  std::vector<Piece> pieces;
  for (const Tensor& grad : op.grads)
    for (int64_t begin = 0; begin < grad.numel(); begin += kPiece) pieces.push_back({&grad, begin});
  std::vector<double> sums(pieces.size());
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto [grad, begin] = pieces[static_cast<size_t>(i)];
    sums[static_cast<size_t>(i)] =
        HWY_DYNAMIC_DISPATCH(piece_sum)(*grad, begin, std::min(kPiece, grad->numel() - begin));
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return ops::norm_of_squares(sum, op.in_two);
}

}  // namespace

void register_simd_global_norm() {
  ops::kernels<GlobalNorm>().add("simd", {.accepts = ops::accept_all<GlobalNorm::Signature>, .forward = run});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
