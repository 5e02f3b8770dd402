#include "preprocessing/resample_loops.h"

#include <algorithm>

namespace temper::preprocessing {
namespace {

using media::Picture;

// The sum over `count` taps that are `stride` bytes apart.
uint8_t weighted(const uint8_t* pixel, int64_t stride, const int32_t* weights, int64_t count) {
  int32_t sum = 1 << (kWeightBits - 1);
  for (int64_t k = 0; k < count; ++k) sum += pixel[k * stride] * weights[k];
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

}  // namespace

void horizontal_loops(const Picture& from, const ResampleWeights& weights, Picture& to) {
  for (int64_t y = 0; y < to.height(); ++y)
    for (int64_t x = 0; x < to.width(); ++x)
      for (int color = 0; color < Picture::kColors; ++color)
        to.row(y)[x * Picture::kPixelBytes + color] =
            weighted(from.row(y) + weights.first[static_cast<size_t>(x)] * Picture::kPixelBytes + color,
                     Picture::kPixelBytes, weights.weights.data() + x * weights.taps,
                     weights.counts[static_cast<size_t>(x)]);
}

void vertical_loops(const Picture& from, const ResampleWeights& weights, Picture& to) {
  for (int64_t y = 0; y < to.height(); ++y)
    for (int64_t x = 0; x < to.width(); ++x)
      for (int color = 0; color < Picture::kColors; ++color)
        to.row(y)[x * Picture::kPixelBytes + color] =
            weighted(from.row(weights.first[static_cast<size_t>(y)]) + x * Picture::kPixelBytes + color,
                     from.width() * Picture::kPixelBytes, weights.weights.data() + y * weights.taps,
                     weights.counts[static_cast<size_t>(y)]);
}

}  // namespace temper::preprocessing
