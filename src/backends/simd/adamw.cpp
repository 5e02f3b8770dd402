#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "backends/floats.h"
#include "base/threads/threads.h"
#include "ops/adamw/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/adamw.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// Elements whose random bits are made together: few enough for the nearest cache.
constexpr int64_t kBlock = 512;

// A tensor that is updated, from some element on. bfloat16 is rounded stochastically.
template <class T>
class State {
 public:
  State(const Philox<>& philox, uint64_t stream, const Tensor& tensor, int64_t begin)
      : values_(tensor.data<T>() + begin),
        philox_(philox),
        stream_(stream + static_cast<uint64_t>(begin) / 8) {}

  // Before `count` elements from there on are set.
  HWY_INLINE void prepare(int64_t first, int64_t count) {
    if constexpr (kRounded) {
      philox_.fill(stream_ + static_cast<uint64_t>(first) / 8, (count + 7) / 8, random_);
      prepared_ = first;
    }
  }
  HWY_INLINE Lanes get(int64_t i, auto lanes) const { return load(values_ + i, lanes); }
  HWY_INLINE void set(Lanes value, int64_t i, auto lanes) const {
    if constexpr (kRounded) {
      const auto* halves = reinterpret_cast<const uint16_t*>(random_) + (i - prepared_);
      store(narrow(value, hn::PromoteTo(Words(), hn::LoadU(Halves(), halves))), values_ + i, lanes);
    } else {
      store(value, values_ + i, lanes);
    }
  }

 private:
  static constexpr bool kRounded = !std::is_same_v<T, float>;
  T* values_;
  const Philox<>& philox_;
  uint64_t stream_;  // counter of the first element
  int64_t prepared_ = 0;
  HWY_ALIGN uint32_t random_[kRounded ? kBlock / 2 : 1];
};

// The numbers that one slot is updated with.
struct Factors {
  Factors(const ops::AdamW& op, const ops::AdamW::Slot& slot, float clip_scale)
      : correction1(correction(op.beta1, op.step)),
        correction2(correction(op.beta2, op.step)),
        beta1(fill(op.beta1)),
        beta2(fill(op.beta2)),
        rest1(fill(1 - op.beta1)),
        rest2(fill(1 - op.beta2)),
        lr(fill(op.lr)),
        eps(fill(op.eps)),
        clip(fill(clip_scale)),
        decay(fill(op.lr * slot.weight_decay)) {}
  static Lanes correction(float beta, int64_t step) {
    return fill(static_cast<float>(1 - std::pow(double{beta}, step)));
  }
  Lanes correction1, correction2, beta1, beta2, rest1, rest2, lr, eps, clip, decay;
};

// Updates elements [begin, end) of one slot in one pass.
template <class Value, class Grad, class Moment, bool kMaster>
void update_piece(const ops::AdamW& op, size_t index, float clip, int64_t begin, int64_t end) {
  using Weight = std::conditional_t<kMaster, float, Value>;
  constexpr bool kFuses =
      std::is_same_v<Weight, float> && std::is_same_v<Grad, float> && std::is_same_v<Moment, float>;
  const ops::AdamW::Slot& slot = op.slots[index];
  const Factors f(op, slot, clip);
  const Grad* grad = slot.grad.data<Grad>() + begin;
  Value* value = slot.value.data<Value>() + begin;
  const Philox<> philox(ops::rounding_bits(op, index, ops::RoundedTensor::kValue).random);
  const auto stream = [&](ops::RoundedTensor tensor) { return ops::rounding_bits(op, index, tensor).first; };
  State<Weight> w(philox, stream(ops::RoundedTensor::kValue), kMaster ? slot.master : slot.value, begin);
  State<Moment> m(philox, stream(ops::RoundedTensor::kExpAvg), slot.exp_avg, begin),
      v(philox, stream(ops::RoundedTensor::kExpAvgSq), slot.exp_avg_sq, begin);
  // a b + c. What is rounded stochastically must be what `eager` rounds, which fuses nothing.
  const auto multiply_add = [](Lanes a, Lanes b, Lanes c)
                                HWY_ATTR { return kFuses ? hn::MulAdd(a, b, c) : hn::Add(hn::Mul(a, b), c); };
  for (int64_t first = 0; first < end - begin; first += kBlock) {
    const int64_t count = std::min(kBlock, end - begin - first);
    w.prepare(first, count);
    m.prepare(first, count);
    v.prepare(first, count);
    sweep(count, [&](int64_t offset, auto lanes) HWY_ATTR {
      const int64_t i = first + offset;
      const Lanes g = hn::Mul(load(grad + i, lanes), f.clip), old = w.get(i, lanes);
      const Lanes new_m = multiply_add(f.beta1, m.get(i, lanes), hn::Mul(f.rest1, g));
      const Lanes new_v = multiply_add(f.beta2, v.get(i, lanes), hn::Mul(hn::Mul(f.rest2, g), g));
      const Lanes denominator = hn::Add(hn::Sqrt(hn::Div(new_v, f.correction2)), f.eps);
      const Lanes step = hn::Div(hn::Mul(f.lr, hn::Div(new_m, f.correction1)), denominator);
      const Lanes new_w = hn::Sub(old, multiply_add(f.decay, old, step));
      m.set(new_m, i, lanes);
      v.set(new_v, i, lanes);
      w.set(new_w, i, lanes);
      if constexpr (kMaster) store(new_w, value + i, lanes);
    });
  }
}

void update(const ops::AdamW& op, size_t index, float clip, int64_t begin, int64_t end) {
  const ops::AdamW::Slot& slot = op.slots[index];
  visit_wide(slot.value.dtype(), [&]<class Value>() {
    visit_wide(slot.grad.dtype(), [&]<class Grad>() {
      visit_wide(slot.exp_avg.dtype(), [&]<class Moment>() {
        if (slot.master.defined())
          update_piece<Value, Grad, Moment, true>(op, index, clip, begin, end);
        else
          update_piece<Value, Grad, Moment, false>(op, index, clip, begin, end);
      });
    });
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
    size_t slot;
    int64_t begin;
  };
  std::vector<Piece> pieces;  // of all slots together, so that small parameters do not serialise
  for (size_t slot = 0; slot < op.slots.size(); ++slot)
    for (int64_t begin = 0; begin < op.slots[slot].value.numel(); begin += kPiece)
      pieces.push_back({slot, begin});
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto [slot, begin] = pieces[static_cast<size_t>(i)];
    const int64_t end = std::min(begin + kPiece, op.slots[slot].value.numel());
    HWY_DYNAMIC_DISPATCH(update)(op, slot, clip, begin, end);
  });
}

}  // namespace

void register_simd_adamw() { ops::kernels<AdamW>().add("simd", {.accepts = refuse_float16, .forward = run}); }

}  // namespace temper::backends
#endif  // HWY_ONCE
