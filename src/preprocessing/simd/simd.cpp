// The two passes in vectors of 32-bit numbers, of which a pixel has four.
#include <algorithm>
#include <cstring>
#include <vector>

#include "preprocessing/resample_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "preprocessing/simd/simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace temper::preprocessing {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using media::Picture;

#if HWY_TARGET == HWY_SCALAR

// Vectors that hold no pixel.
void horizontal(const Picture& from, const ResampleWeights& weights, Picture& to) {
  horizontal_loops(from, weights, to);
}
void vertical(const Picture& from, const ResampleWeights& weights, Picture& to) {
  vertical_loops(from, weights, to);
}

#else

using Pixel = hn::CappedTag<int32_t, 4>;    // one
using Pixels = hn::CappedTag<int32_t, 16>;  // up to four
using Row = hn::ScalableTag<int32_t>;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

template <class D>
HWY_INLINE hn::Vec<D> load(D lanes, const uint8_t* bytes) {
  return hn::PromoteTo(lanes, hn::LoadU(hn::Rebind<uint8_t, D>(), bytes));
}

template <class D>
HWY_INLINE void store(D lanes, hn::Vec<D> sum, uint8_t* bytes) {
  const hn::Rebind<uint8_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::ShiftRight<kWeightBits>(hn::Add(sum, hn::Set(lanes, kHalf)))), narrow,
             bytes);
}

template <class D>
HWY_INLINE hn::Vec<Pixel> sum_of_pixels(D lanes, hn::Vec<D> sum) {
  if constexpr (hn::MaxLanes(lanes) == hn::MaxLanes(Pixel())) {
    return sum;
  } else {
    const hn::Half<D> half;
    return sum_of_pixels(half, hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)));
  }
}

// Each weight four times, for the four bytes of its pixel; taps become a multiple of a vector's pixels.
struct SpreadWeights {
  explicit SpreadWeights(const ResampleWeights& weights) {
    const auto pixels = static_cast<int64_t>(hn::Lanes(Pixels())) / Picture::kPixelBytes;
    int64_t most = 0;
    for (const int64_t count : weights.counts) most = std::max(most, count);
    lanes = (most + pixels - 1) / pixels * pixels * Picture::kPixelBytes;
    values.resize(static_cast<size_t>(weights.size() * lanes));
    for (int64_t i = 0; i < weights.size(); ++i)
      for (int64_t k = 0; k < weights.counts[static_cast<size_t>(i)]; ++k)
        std::fill_n(values.begin() + i * lanes + k * Picture::kPixelBytes, Picture::kPixelBytes,
                    weights.weights[static_cast<size_t>(i * weights.taps + k)]);
  }
  int64_t lanes = 0;            // of each result
  std::vector<int32_t> values;  // [results, lanes]
};

// kRows rows at a time, which share the weights.
template <int64_t kRows>
void horizontal_rows(const Picture& from, const ResampleWeights& weights, const SpreadWeights& spread,
                     int64_t y, Picture& to) {
  const Pixels lanes;
  const auto step = static_cast<int64_t>(hn::Lanes(lanes));
  for (int64_t x = 0; x < to.width(); ++x) {
    const int64_t first = weights.first[static_cast<size_t>(x)] * Picture::kPixelBytes;
    const int32_t* const of_pixel = spread.values.data() + x * spread.lanes;
    hn::Vec<Pixels> sums[kRows];
    for (auto& sum : sums) sum = hn::Zero(lanes);
    // Weights behind the last tap are 0, whatever the bytes there are.
    for (int64_t k = 0; k < spread.lanes; k += step) {
      const auto weight = hn::LoadU(lanes, of_pixel + k);
      for (int64_t row = 0; row < kRows; ++row)
        sums[row] = hn::Add(sums[row], hn::Mul(load(lanes, from.row(y + row) + first + k), weight));
    }
    for (int64_t row = 0; row < kRows; ++row)
      store(Pixel(), sum_of_pixels(lanes, sums[row]), to.row(y + row) + x * Picture::kPixelBytes);
  }
}

void horizontal(const Picture& from, const ResampleWeights& weights, Picture& to) {
  constexpr int64_t kRows = 4;
  const SpreadWeights spread(weights);
  int64_t y = 0;
  for (; y + kRows <= to.height(); y += kRows) horizontal_rows<kRows>(from, weights, spread, y, to);
  for (; y < to.height(); ++y) horizontal_rows<1>(from, weights, spread, y, to);
}

// kVectors neighboring vectors of one row of the result.
template <int kVectors, class D>
HWY_INLINE void vertical_part(D lanes, const uint8_t* from, int64_t stride, const int32_t* weights,
                              int64_t count, uint8_t* to) {
  const auto step = static_cast<int64_t>(hn::Lanes(lanes));
  hn::Vec<D> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(lanes);
  for (int64_t k = 0; k < count; ++k, from += stride) {
    const auto weight = hn::Set(lanes, weights[k]);
    for (int i = 0; i < kVectors; ++i)
      sums[i] = hn::Add(sums[i], hn::Mul(load(lanes, from + i * step), weight));
  }
  for (int i = 0; i < kVectors; ++i) store(lanes, sums[i], to + i * step);
}

void vertical(const Picture& from, const ResampleWeights& weights, Picture& to) {
  constexpr int kVectors = 4;
  const int64_t stride = from.width() * Picture::kPixelBytes;
  const int64_t block = kVectors * static_cast<int64_t>(hn::Lanes(Row()));
  for (int64_t y = 0; y < to.height(); ++y) {
    const uint8_t* const source = from.row(weights.first[static_cast<size_t>(y)]);
    const int32_t* const of_row = weights.weights.data() + y * weights.taps;
    const int64_t count = weights.counts[static_cast<size_t>(y)];
    int64_t at = 0;
    for (; at + block <= stride; at += block)
      vertical_part<kVectors>(Row(), source + at, stride, of_row, count, to.row(y) + at);
    for (; at < stride; at += Picture::kPixelBytes)
      vertical_part<1>(Pixel(), source + at, stride, of_row, count, to.row(y) + at);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::preprocessing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::preprocessing {
namespace {

HWY_EXPORT(horizontal);
HWY_EXPORT(vertical);

void run_horizontal(const media::Picture& from, const ResampleWeights& weights, media::Picture& to) {
  HWY_DYNAMIC_DISPATCH(horizontal)(from, weights, to);
}

void run_vertical(const media::Picture& from, const ResampleWeights& weights, media::Picture& to) {
  HWY_DYNAMIC_DISPATCH(vertical)(from, weights, to);
}

}  // namespace

void register_simd() { registry<ResamplePasses>().add("simd", {run_horizontal, run_vertical}); }

}  // namespace temper::preprocessing
#endif  // HWY_ONCE
