#include "preprocessing/resample.h"

#include <gtest/gtest.h>

#include <numeric>

#include "preprocessing/resample_loops.h"

namespace temper::preprocessing {
namespace {

using media::Picture;
using media::Size;

// Every byte is there, extremes most of all, so that sums are clipped on both sides.
Picture noise(Size size) {
  Picture picture(size);
  uint32_t state = 12345;
  for (int64_t i = 0; i < picture.bytes(); ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t drawn = state >> 24;
    picture.row(0)[i] = static_cast<uint8_t>(drawn < 64 ? 0 : drawn > 192 ? 255 : (drawn * 7) % 256);
  }
  return picture;
}

bool same_colors(const Picture& a, const Picture& b) {
  if (a.size() != b.size()) return false;
  for (int64_t i = 0; i < a.bytes(); ++i)
    if (i % Picture::kPixelBytes < Picture::kColors && a.row(0)[i] != b.row(0)[i]) return false;
  return true;
}

TEST(Resample, EveryRoomHasTheBytesOfTheLoops) {
  const ResamplePasses loops = {horizontal_loops, vertical_loops};
  const std::vector<std::pair<Size, Size>> sizes = {
      {{1, 1}, {28, 28}},   {{2, 3}, {3, 2}},     {{13, 9}, {84, 56}},    {{84, 60}, {28, 56}},
      {{101, 7}, {7, 101}}, {{64, 64}, {64, 32}}, {{64, 64}, {32, 64}},   {{33, 5}, {1, 1}},
      {{7, 400}, {28, 28}}, {{400, 7}, {28, 28}}, {{150, 14}, {196, 28}}, {{200, 150}, {56, 56}},
      {{37, 51}, {56, 84}}, {{5, 6}, {5, 6}}};
  for (const auto& [name, passes] : registry<ResamplePasses>().entries())
    for (const auto& [from, to] : sizes)
      for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
        const Picture picture = noise(from);
        EXPECT_TRUE(same_colors(resample(picture, to, filter, passes), resample(picture, to, filter, loops)))
            << name << ": " << from.width << " x " << from.height << " to " << to.width << " x " << to.height;
      }
}

TEST(Resample, TheLastRoomIsPreferred) {
  const auto& rooms = registry<ResamplePasses>().entries();
  ASSERT_FALSE(rooms.empty());
  EXPECT_EQ(rooms.front().name, "plain");
  EXPECT_EQ(rooms.back().name, rooms.size() == 1 ? "plain" : "simd");
}

TEST(ResampleWeights, SumToOneAndStayInThePicture) {
  for (const auto& [from, to] :
       {std::pair<int64_t, int64_t>{7, 28}, {28, 7}, {1000, 999}, {3, 1}, {1, 3}, {50, 50}})
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      const ResampleWeights weights = resample_weights(from, to, filter);
      ASSERT_EQ(weights.size(), to);
      for (int64_t i = 0; i < to; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_GE(weights.first[at], 0);
        EXPECT_GE(weights.counts[at], 1);
        EXPECT_LE(weights.counts[at], weights.taps);
        EXPECT_LE(weights.first[at] + weights.counts[at], from);
        const auto begin = weights.weights.begin() + i * weights.taps;
        const int64_t sum = std::accumulate(begin, begin + weights.counts[at], int64_t{0});
        EXPECT_NEAR(static_cast<double>(sum), 1 << kWeightBits, static_cast<double>(weights.taps));
        EXPECT_EQ(std::count(begin + weights.counts[at], begin + weights.taps, 0),
                  weights.taps - weights.counts[at]);
      }
    }
}

// Halving with a triangle: 1/8, 3/8, 3/8, 1/8, and at the border without what lies outside.
TEST(ResampleWeights, OfATriangleThatHalves) {
  const ResampleWeights weights = resample_weights(8, 4, Filter::kBilinear);
  const int32_t eighth = 1 << (kWeightBits - 3);
  EXPECT_EQ(weights.first, (std::vector<int64_t>{0, 1, 3, 5}));
  EXPECT_EQ(weights.counts, (std::vector<int64_t>{3, 4, 4, 3}));
  EXPECT_EQ(std::vector<int32_t>(weights.weights.begin() + weights.taps,
                                 weights.weights.begin() + weights.taps + 4),
            (std::vector<int32_t>{eighth, 3 * eighth, 3 * eighth, eighth}));
  EXPECT_EQ(weights.weights[0], static_cast<int32_t>(3.0 / 7 * (1 << kWeightBits) + 0.5));
}

}  // namespace
}  // namespace temper::preprocessing
