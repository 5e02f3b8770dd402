#include "preprocessing/picture_shape.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::preprocessing {
namespace {

using media::Size;

PatchLayout layout(int64_t factor, int64_t least, int64_t most) {
  return {.patch_size = factor / 2, .merge_size = 2, .min_pixels = least, .max_pixels = most};
}

// Halves are rounded to the even multiple, which decides whether a picture is too small or too large.
TEST(PictureShape, HalvesAreRoundedToEven) {
  EXPECT_EQ(smart_resize({70, 42}, layout(28, 1, 1 << 20), ""), (Size{56, 56}));
  EXPECT_EQ(smart_resize({2048, 16}, layout(32, 65536, 1 << 24), ""), (Size{2912, 32}));
}

TEST(PictureShape, AspectsBeyond200AreRefused) {
  EXPECT_NO_THROW(smart_resize({16, 3200}, layout(28, 3136, 1 << 20), "cat"));
  EXPECT_EQ(error_of([] {
              smart_resize({3201, 16}, layout(28, 3136, 1 << 20), "cat");
            }),
            "[cat] is 3201 x 16 pixels: one side is more than 200 times the other, which no grid of patches "
            "takes; cut "
            "it into parts, or leave it out");
}

// Placeholders in the text, rows of values and what the tower makes of them are counted by one rule.
TEST(PictureShape, TokensAreRowsDividedByABlock) {
  PictureSettings settings;
  uint64_t state = 7;
  for (const int64_t patch : {14, 16}) {
    settings.layout = PatchLayout{.patch_size = patch, .min_pixels = 3136, .max_pixels = 1003520};
    for (int i = 0; i < 5000; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const Size size = {static_cast<int64_t>(state >> 40) % 1500 + 1,
                         static_cast<int64_t>(state >> 20) % 1500 + 1};
      if (std::max(size.width, size.height) > 200 * std::min(size.width, size.height)) continue;
      const PictureShape shape = shape_of(size, settings, "cat");
      EXPECT_EQ(shape.resized.width % (2 * patch), 0);
      EXPECT_EQ(shape.resized.height % (2 * patch), 0);
      EXPECT_GT(shape.tokens, 0);
      EXPECT_EQ(shape.tokens * 4, shape.rows);
      EXPECT_EQ(shape.rows * patch * patch, shape.resized.width * shape.resized.height);
      EXPECT_EQ(shape.columns, 3 * 2 * patch * patch);
    }
  }
}

TEST(PictureShape, WhatIsNotResizedMustFit) {
  PictureSettings settings;
  settings.resize = false;
  settings.layout = PatchLayout{};
  EXPECT_EQ(shape_of({56, 84}, settings, "cat").grid, (Grid{1, 6, 4}));
  EXPECT_EQ(error_of([&] {
              shape_of({57, 84}, settings, "cat");
            }),
            "[cat] is 57 x 84 pixels and is not resized (do_resize is false), expected multiples of 28; "
            "resize it, or "
            "set do_resize to true");
  settings.layout = FixedLayout{};
  EXPECT_EQ(shape_of({224, 224}, settings, "cat").tokens, 256);
  expect_has(error_of([&] { shape_of({224, 225}, settings, "cat"); }), "expected 224 x 224; resize it");
}

TEST(PictureShape, CropsCoverTheLongerSide) {
  const PanAndScan settings = {.min_crop_size = 16, .max_crops = 4, .min_ratio = 1.2};
  EXPECT_TRUE(crops_of({100, 90}, settings).empty());
  EXPECT_TRUE(crops_of({150, 14}, settings).empty());  // a side is too short
  const std::vector<Crop> wide = crops_of({101, 40}, settings);
  ASSERT_EQ(wide.size(), 3U);
  EXPECT_EQ(wide[2].left, 68);
  EXPECT_EQ(wide[2].size, (Size{33, 40}));
  const std::vector<Crop> tall = crops_of({20, 200}, settings);
  ASSERT_EQ(tall.size(), 4U);
  EXPECT_EQ(tall[3].top, 150);
  PictureSettings all;
  all.layout = FixedLayout{.size = {32, 32}, .tokens = 16, .pan_and_scan = settings};
  EXPECT_EQ(shape_of({101, 40}, all, "cat").tokens, 64);
  EXPECT_EQ(shape_of({101, 40}, all, "cat").rows, 4);
}

}  // namespace
}  // namespace temper::preprocessing
