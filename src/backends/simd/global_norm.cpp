#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/simd/simd.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/global_norm.cpp"
#include <hwy/foreach_target.h>

#include "backends/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

double sum_of_squares(const float* values, int64_t count) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow_tag;
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  auto even = hn::Zero(wide), odd = even;  // two chains hide the latency of the additions
  int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto a = hn::PromoteTo(wide, hn::LoadU(narrow_tag, values + i));
    const auto b = hn::PromoteTo(wide, hn::LoadU(narrow_tag, values + i + step));
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(even, odd)));
  for (; i < count; ++i) sum += double{values[i]} * values[i];
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
HWY_EXPORT(sum_of_squares);

Tensor run(const GlobalNorm& op) {
  constexpr int64_t kPiece = 1 << 15;
  std::vector<std::pair<const float*, int64_t>> pieces;
  for (const Tensor& grad : op.grads)
    for (int64_t begin = 0; begin < grad.numel(); begin += kPiece)
      pieces.emplace_back(grad.data<float>() + begin, std::min(kPiece, grad.numel() - begin));
  std::vector<double> sums(pieces.size());
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto [values, count] = pieces[static_cast<size_t>(i)];
    sums[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(sum_of_squares)(values, count);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return Tensor::from(std::vector<float>{static_cast<float>(std::sqrt(sum))});
}

ops::Refusal accepts(const GlobalNorm::Signature& signature, const HardwareFacts&) {
  if (signature.grads != DType::kF32)
    return fmt::format("gradients are {}, must be float32", to_string(signature.grads));
  return std::nullopt;
}

}  // namespace

ops::Kernel<GlobalNorm> global_norm_kernel() { return {.accepts = accepts, .forward = run}; }

}  // namespace temper::backends
#endif  // HWY_ONCE
