// Fake quantization of bfloat16 to E2M1 by comparisons: an element's magnitude is compared with limits, which
// say which of eight results it has. Included like lanes-inl.h, after fake_pairs-inl.h.
#if defined(TEMPER_BACKENDS_SIMD_FAKE_LEVELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_BACKENDS_SIMD_FAKE_LEVELS_INL_H
#undef TEMPER_BACKENDS_SIMD_FAKE_LEVELS_INL_H
#else
#define TEMPER_BACKENDS_SIMD_FAKE_LEVELS_INL_H
#endif

#include <algorithm>
#include <bit>

#include "backends/cpu/lanes-inl.h"
#include "backends/simd/fake_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends::HWY_NAMESPACE {

// Fakes blocks of E2M1 and returns how many elements, 0 where there are no Levels or where numbers are so
// large or small that what is done here would not have the bits of quant::quantized and dequantized.
template <quant::Scaling kScaling, class T>
struct Levels {
  HWY_INLINE void take(float) {}
  HWY_INLINE int64_t fake_blocks(const T*, T*, int64_t, int64_t, const BlockFactors&) const { return 0; }
};

#if HWY_NATIVE_FMA && !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
// A block's scale is E4M3, with three bits after the point, times the scale of the matrix: apart from a power
// of two it is one of eight, whose limits and results are found once for a matrix. A power of two moves the
// bits of bfloat16 by 0x80 times its exponent. So all bits are moved by a distance of the block, to where the
// middle one of its limits is kMiddle.
//
// The limits are a binary tree. Its node n has the children 2n and 2n + 1, modulo 16, and its leaves are the
// results. The lower bytes of limits and results begin with node 1, their upper bytes with node 6, so that
// no two of them have one place, and a lookup of bytes finds both bytes of a word.
template <quant::Scaling kScaling>
struct Levels<kScaling, BFloat16> {
  // quant::global_scale of the matrix.
  void take(float global) {
    const Words words;
    const float significand = std::bit_cast<float>((std::bit_cast<uint32_t>(global) & 0x7FFFFF) | 0x3F800000);
    for (int64_t first = 0; first < kKinds; first += width()) {
      const Lanes eighths = hn::Iota(Floats(), static_cast<float>(8 + first));
      const Lanes scale = hn::Mul(hn::Mul(eighths, fill(0.125f)), fill(significand));
      const auto middle = last_below(scale, 1.75f, true);
      const auto moved = hn::Sub(hn::Set(words, kMiddle), middle), twice = hn::Set(words, 0x80);
      const auto to_half = hn::Add(last_below(scale, 0.25f, false), moved),
                 to_one = hn::Add(last_below(scale, 0.75f, true), moved),
                 to_three_halves = hn::Add(last_below(scale, 1.25f, false), moved),
                 to_three = hn::Add(to_three_halves, twice), to_four = hn::Set(words, kMiddle + 0x80),
                 to_six = hn::Add(to_three, twice);
      uint32_t* const limits = limits_ + 4 * first;
      hn::StoreInterleaved4(bytes<0>(middle, middle, to_one, to_four),
                            bytes<0>(to_half, to_three_halves, to_three, to_six),
                            bytes<8>(to_half, to_three_halves, to_three, to_six),
                            bytes<8>(to_one, to_four, middle, middle), words, limits);
      const auto zero = hn::Zero(words), one = hn::Add(rounded(scale), moved),
                 three_halves = hn::Add(rounded(hn::Mul(scale, fill(1.5f))), moved),
                 two = hn::Add(one, twice), three = hn::Add(three_halves, twice), four = hn::Add(two, twice),
                 six = hn::Add(three, twice), half = hn::Sub(one, twice);
      hn::StoreInterleaved4(bytes<8>(zero, half, one, three_halves), bytes<8>(two, three, four, six),
                            bytes<0>(zero, half, one, three_halves), bytes<0>(two, three, four, six), words,
                            results_ + 4 * first);
      hn::StoreU(hn::Add(moved, exponent(scale)), words, distances_ + first);
    }
  }

  // Blocks of `size` elements.
  HWY_INLINE int64_t fake_blocks(const BFloat16* x, BFloat16* y, int64_t blocks, int64_t size,
                                 const BlockFactors& factors) const {
    if (!factors.moderate) return 0;
    HWY_ALIGN uint32_t distances[kBlocks], kinds[kBlocks];
    for (int64_t block = 0; block < blocks; block += width()) place(factors, block, distances, kinds);
    if (size == 16) return fake_placed<16>(x, y, blocks, distances, kinds);
    if (size == 32) return fake_placed<32>(x, y, blocks, distances, kinds);
    return 0;
  }

 private:
  using HalfWords = hn::Repartition<uint16_t, Words>;
  using Bytes = hn::Repartition<uint8_t, Words>;
  using Integers = hn::RebindToSigned<HalfWords>;
  using Places = hn::Vec<HalfWords>;
  using Signed = hn::Vec<Integers>;
  struct Tables {
    hn::Vec<Words> limits, results;
  };
  static constexpr int64_t kKinds = 8;
  static constexpr uint16_t kMiddle = 0x7000;
  static constexpr int64_t kAhead = 16 * kBlocks;  // of elements that are asked for before they are needed

  // The largest bfloat16 that, divided by a scale from 1 to 4, is below what becomes the next element;
  // `ties`: the limit itself becomes that.
  static HWY_INLINE hn::Vec<Words> last_below(Lanes scale, float limit, bool ties) {
    const Words words;
    // What is above the next float32 is beyond the limit.
    const auto bits = hn::Add(hn::BitCast(words, hn::Mul(scale, fill(limit))), hn::Set(words, 1));
    const Lanes candidate = hn::BitCast(Floats(), hn::And(bits, hn::Set(words, 0xFFFF0000)));
    const Lanes quotient = hn::Div(candidate, scale);
    const auto beyond = ties ? hn::Ge(quotient, fill(limit)) : hn::Gt(quotient, fill(limit));
    return hn::Add(hn::ShiftRight<16>(bits), hn::VecFromMask(words, hn::RebindMask(words, beyond)));
  }

  // As bfloat16, ties to even.
  static HWY_INLINE hn::Vec<Words> rounded(Lanes value) {
    const Words words;
    const auto bits = hn::BitCast(words, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
    return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7FFF))));
  }

  // In the place where bfloat16 has it.
  static HWY_INLINE hn::Vec<Words> exponent(Lanes value) {
    return hn::And(hn::ShiftRight<16>(hn::BitCast(Words(), value)), hn::Set(Words(), 0x7F80));
  }

  // The bytes that begin at a bit of each.
  template <int kBit>
  static HWY_INLINE hn::Vec<Words> bytes(hn::Vec<Words> a, hn::Vec<Words> b, hn::Vec<Words> c,
                                         hn::Vec<Words> d) {
    const auto byte = [](hn::Vec<Words> word)
                          HWY_ATTR { return hn::And(hn::ShiftRight<kBit>(word), hn::Set(Words(), 0xFF)); };
    return hn::Or(hn::Or(byte(a), hn::ShiftLeft<8>(byte(b))),
                  hn::Or(hn::ShiftLeft<16>(byte(c)), hn::ShiftLeft<24>(byte(d))));
  }

  // The distances of blocks in both halves of words, and where their tables are.
  HWY_INLINE void place(const BlockFactors& factors, int64_t block, uint32_t* distances,
                        uint32_t* kinds) const {
    const Words words;
    const auto scale = hn::BitCast(words, hn::LoadU(Floats(), factors.scale + block));
    const auto kind = hn::And(hn::ShiftRight<20>(scale), hn::Set(words, kKinds - 1));
    const auto distance = hn::Sub(distance_of(kind), exponent(hn::LoadU(Floats(), factors.back + block)));
    hn::StoreU(hn::Or(distance, hn::ShiftLeft<16>(distance)), words, distances + block);
    hn::StoreU(hn::ShiftLeft<2>(kind), words, kinds + block);
  }

  HWY_INLINE hn::Vec<Words> distance_of(hn::Vec<Words> kind) const {
    const Words words;
    if constexpr (hn::MaxLanes(Words()) >= kKinds)
      return hn::TableLookupLanes(hn::Load(words, distances_), hn::IndicesFromVec(words, kind));
    return hn::GatherIndex(words, distances_, hn::BitCast(hn::RebindToSigned<Words>(), kind));
  }

  template <int64_t kSize>
  HWY_INLINE int64_t fake_placed(const BFloat16* x, BFloat16* y, int64_t blocks, const uint32_t* distances,
                                 const uint32_t* kinds) const {
    constexpr int64_t kLanes = hn::MaxLanes(HalfWords());
    int64_t block = 0;
    if constexpr (kSize % kLanes == 0) {
      for (; block < blocks; ++block) {
        const Tables tables{repeated(limits_, kinds[block]), repeated(results_, kinds[block])};
        const Places distance = hn::BitCast(HalfWords(), hn::Set(Words(), distances[block]));
        for (int64_t i = 0; i < kSize; i += kLanes, x += kLanes, y += kLanes) fake(x, y, tables, distance);
      }
    } else if constexpr (2 * kSize == kLanes) {
      for (; block + 2 <= blocks; block += 2, x += kLanes, y += kLanes) {
        const uint32_t first = kinds[block], second = kinds[block + 1];
        const Tables tables{of_two(repeated(limits_, first), repeated(limits_, second)),
                            of_two(repeated(results_, first), repeated(results_, second))};
        const auto distance =
            of_two(hn::Set(Words(), distances[block]), hn::Set(Words(), distances[block + 1]));
        fake(x, y, tables, hn::BitCast(HalfWords(), distance));
      }
    }
    return block * kSize;
  }

  static HWY_INLINE hn::Vec<Words> repeated(const uint32_t* tables, uint32_t kind) {
    return hn::LoadDup128(Words(), tables + kind);
  }
  static HWY_INLINE hn::Vec<Words> of_two(hn::Vec<Words> first, hn::Vec<Words> second) {
    return hn::IfThenElse(hn::FirstN(Words(), hn::MaxLanes(Words()) / 2), first, second);
  }

  // Of nodes: the second ones where magnitudes are beyond limits.
  static HWY_INLINE Places children(Places nodes, Signed magnitudes, Places limits) {
    const HalfWords halves;
    const auto beyond = hn::Gt(magnitudes, hn::BitCast(Integers(), limits));
    const auto first = hn::Add(nodes, nodes);
#if HWY_TARGET <= HWY_AVX3
    return hn::IfThenElse(hn::RebindMask(halves, beyond), hn::Add(first, hn::Set(halves, 0x0101)), first);
#else
    return hn::BitCast(halves, hn::Sub(hn::BitCast(Bytes(), first),
                                       hn::BitCast(Bytes(), hn::VecFromMask(Integers(), beyond))));
#endif
  }

  static HWY_INLINE Places looked_up(hn::Vec<Words> tables, Places nodes) {
    const Bytes bytes;
    return hn::BitCast(HalfWords(),
                       hn::TableLookupBytes(hn::BitCast(bytes, tables), hn::BitCast(bytes, nodes)));
  }

  static HWY_INLINE void fake(const BFloat16* from, BFloat16* to, const Tables& tables, Places distance) {
    const HalfWords halves;
    const Integers integers;
    const Places x = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from));
    hwy::Prefetch(from + kAhead);
    const Signed magnitudes = hn::SaturatedAdd(hn::BitCast(integers, hn::And(x, hn::Set(halves, 0x7FFF))),
                                               hn::BitCast(integers, distance));
    Places nodes = children(hn::Set(halves, 0x0601), magnitudes, hn::Set(halves, kMiddle));
    nodes = children(nodes, magnitudes, looked_up(tables.limits, nodes));
    nodes = children(nodes, magnitudes, looked_up(tables.limits, nodes));
    const Places result = hn::SaturatedSub(looked_up(tables.results, nodes), distance);
    // The mean with this has the sign bit of x, but not where x is -0, which becomes 0 in kTwoLevels.
    const Places signs =
        kScaling == quant::Scaling::kTwoLevels ? hn::AverageRound(x, hn::Set(halves, 0x7FFE)) : x;
    hn::StoreU(hn::OrAnd(result, signs, hn::Set(halves, 0x8000)), halves, reinterpret_cast<uint16_t*>(to));
  }

  // Of each kind of scale.
  static constexpr int64_t kRoom = std::max<int64_t>(kKinds, hn::MaxLanes(Words()));
  HWY_ALIGN uint32_t limits_[4 * kRoom];
  HWY_ALIGN uint32_t results_[4 * kRoom];
  HWY_ALIGN uint32_t distances_[kRoom];
};
#endif

}  // namespace temper::backends::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
