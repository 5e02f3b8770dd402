#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/floats.h"
#include "backends/simd/simd.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/adamw.cpp"
#include <hwy/foreach_target.h>

#include "backends/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// Updates elements [begin, end) of one slot in one pass; `rounded` receives the new weights in T, if any.
template <class T>
void update_piece(const ops::AdamW& op, const ops::AdamW::Slot& slot, float clip_scale, float* weights,
                  T* rounded, int64_t begin, int64_t end) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1 - std::pow(double{beta}, int64_t{op.step}));
  };
  const Lanes correction1 = fill(correction(op.beta1)), correction2 = fill(correction(op.beta2));
  const Lanes beta1 = fill(op.beta1), beta2 = fill(op.beta2), lr = fill(op.lr), eps = fill(op.eps);
  const Lanes rest1 = fill(1 - op.beta1), rest2 = fill(1 - op.beta2), clip = fill(clip_scale);
  const Lanes decay = fill(op.lr * slot.weight_decay);
  float *m = slot.exp_avg.data<float>() + begin, *v = slot.exp_avg_sq.data<float>() + begin,
        *w = weights + begin;
  const float* grad = slot.grad.data<float>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes g = hn::Mul(load(grad + i, lanes), clip), old = load(w + i, lanes);
    const Lanes new_m = hn::MulAdd(beta1, load(m + i, lanes), hn::Mul(rest1, g));
    const Lanes new_v = hn::MulAdd(beta2, load(v + i, lanes), hn::Mul(hn::Mul(rest2, g), g));
    const Lanes denominator = hn::Add(hn::Sqrt(hn::Div(new_v, correction2)), eps);
    const Lanes step = hn::Div(hn::Mul(lr, hn::Div(new_m, correction1)), denominator);
    const Lanes new_w = hn::Sub(old, hn::MulAdd(decay, old, step));
    store(new_m, m + i, lanes);
    store(new_v, v + i, lanes);
    store(new_w, w + i, lanes);
    if (rounded != nullptr) store(new_w, rounded + begin + i, lanes);
  });
}

void update(const ops::AdamW& op, const ops::AdamW::Slot& slot, float clip, int64_t begin, int64_t end) {
  float* none_rounded = nullptr;
  if (!slot.master.defined())
    return update_piece(op, slot, clip, slot.value.data<float>(), none_rounded, begin, end);
  visit_wide(slot.value.dtype(), [&]<class T>() {
    update_piece(op, slot, clip, slot.master.data<float>(), slot.value.data<T>(), begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::AdamW;
HWY_EXPORT(update);

void run(const AdamW& op) {
  const float clip = op.clip();
  if (std::isnan(clip)) return;
  constexpr int64_t kPiece = 1 << 15;
  struct Piece {
    const AdamW::Slot* slot;
    int64_t begin;
  };
  std::vector<Piece> pieces;  // of all slots together, so that small parameters do not serialise
  for (const AdamW::Slot& slot : op.slots)
    for (int64_t begin = 0; begin < slot.value.numel(); begin += kPiece) pieces.push_back({&slot, begin});
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto [slot, begin] = pieces[static_cast<size_t>(i)];
    HWY_DYNAMIC_DISPATCH(update)(op, *slot, clip, begin, std::min(begin + kPiece, slot->value.numel()));
  });
}

ops::Refusal accepts(const AdamW::Signature& signature, const HardwareFacts& facts) {
  if (!signature.master && signature.dtype != DType::kF32) return "needs float32 master weights";
  if (signature.grads != DType::kF32)
    return fmt::format("gradients are {}, must be float32", to_string(signature.grads));
  if (signature.moments != DType::kF32)
    return fmt::format("moments are {}, must be float32", to_string(signature.moments));
  return refuse_float16(signature, facts);
}

}  // namespace

ops::Kernel<AdamW> adamw_kernel() { return {.accepts = accepts, .forward = run}; }

}  // namespace temper::backends
#endif  // HWY_ONCE
