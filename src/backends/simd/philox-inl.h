// Philox4x32-10 for many counters at once. Included as lanes-inl.h is.
#if defined(TEMPER_BACKENDS_SIMD_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_PHILOX_INL_H
#undef TEMPER_BACKENDS_SIMD_PHILOX_INL_H
#else
#define TEMPER_BACKENDS_SIMD_PHILOX_INL_H
#endif

#include <algorithm>

#include "backends/cpu/lanes-inl.h"
#include "base/random.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

// A lane has one word of a counter in its lower half; what the upper half holds does not matter.
template <class D>
HWY_INLINE hn::Vec<D> multiply_words(D, hn::Vec<D> a, uint32_t b) {
  const hn::RepartitionToNarrow<D> words;
  return hn::MulEven(hn::BitCast(words, a), hn::Set(words, b));
}

// Words above others, as pairs lie in memory.
template <class D>
HWY_INLINE hn::Vec<D> pair_words(D d, hn::Vec<D> low, hn::Vec<D> high) {
  return hn::Or(hn::And(low, hn::Set(d, 0xFFFFFFFFu)), hn::ShiftLeft<32>(high));
}

// The words of a `Random`. Everything but the element stands ready in vectors.
template <class D = hn::ScalableTag<uint64_t>>
class Philox {
 public:
  explicit Philox(const Random& random) : random_(random) {
    const D d;
    auto [key0, key1] = random.key();
    for (int round = 0; round < kRounds; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      key0_[round] = hn::Set(d, key0);
      key1_[round] = hn::Set(d, key1);
    }
    const auto counter = random.counter(0);
    third_ = hn::Set(d, counter[2]);
    fourth_ = hn::Set(d, counter[3]);
  }

  // to[0, 4 · count) = words(first), words(first + 1), …, rounded up to whole vectors of them, for which
  // there must be room.
  void fill(uint64_t first, int64_t count, uint32_t* to) const {
    const D d;
    if constexpr (hn::MaxLanes(D()) == 1) {  // plain C++
      for (int64_t i = 0; i < count; ++i) {
        const auto words = random_.words(first + static_cast<uint64_t>(i));
        std::copy(words.begin(), words.end(), to + 4 * i);
      }
    } else {
      const auto step = static_cast<int64_t>(hn::Lanes(d));
      auto element = hn::Iota(d, first);
      for (int64_t i = 0; i < count; i += step, to += 4 * step) {
        store_words(element, to);
        element = hn::Add(element, hn::Set(d, static_cast<uint64_t>(step)));
      }
    }
  }

 private:
  HWY_INLINE void store_words(hn::Vec<D> element, uint32_t* to) const {
    const D d;
    auto a = element, b = hn::ShiftRight<32>(element), c = third_, e = fourth_;
    for (int round = 0; round < kRounds; ++round) {
      const auto product0 = multiply_words(d, a, 0xD2511F53u), product1 = multiply_words(d, c, 0xCD9E8D57u);
      a = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), b), key0_[round]);
      c = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), e), key1_[round]);
      b = product1;
      e = product0;
    }
    hn::StoreInterleaved2(pair_words(d, a, b), pair_words(d, c, e), d, reinterpret_cast<uint64_t*>(to));
  }

  static constexpr int kRounds = 10;
  Random random_;
  hn::Vec<D> key0_[kRounds], key1_[kRounds], third_, fourth_;
};

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
