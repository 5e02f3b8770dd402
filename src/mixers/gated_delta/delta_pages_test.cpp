#include "mixers/gated_delta/delta_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace temper::mixers {
namespace {

TEST(DeltaPages, ASlotBeginsAgainAndIsCopied) {
  const GatedDeltaConfig config{
      .hidden = 8, .key_heads = 1, .heads = 2, .key_dim = 3, .value_dim = 4, .width = 4};
  const DeltaPages pages(config, 3, DType::kBF16);
  EXPECT_EQ(pages.states().shape(), (Shape{3, 2, 3, 4}));
  EXPECT_EQ(pages.states().dtype(), DType::kF32);
  EXPECT_EQ(pages.windows().shape(), (Shape{3, 3, 14}));
  EXPECT_EQ(pages.windows().dtype(), DType::kBF16);
  const auto all_are = [&](int64_t slot, float expected) {
    const auto states = pages.states().narrow(0, slot, 1).values<float>();
    const auto windows = pages.windows().narrow(0, slot, 1).values<BFloat16>();
    return std::all_of(states.begin(), states.end(), [&](float value) { return value == expected; }) &&
           std::all_of(windows.begin(), windows.end(),
                       [&](BFloat16 value) { return static_cast<float>(value) == expected; });
  };
  EXPECT_TRUE(all_are(1, 0));
  for (float& value : pages.states().values<float>()) value = 1;
  for (BFloat16& value : pages.windows().values<BFloat16>()) value = BFloat16(1);
  // Whatever is there, as after memory that was given back: none of it is left.
  for (float& value : pages.states().narrow(0, 1, 1).values<float>()) value = std::nanf("");
  for (BFloat16& value : pages.windows().narrow(0, 1, 1).values<BFloat16>()) value = BFloat16(std::nanf(""));
  pages.clear_slot(1);
  EXPECT_TRUE(all_are(1, 0));
  EXPECT_TRUE(all_are(0, 1));
  EXPECT_TRUE(all_are(2, 1));
  pages.copy_slot(1, 2);
  EXPECT_TRUE(all_are(2, 0));
  EXPECT_TRUE(all_are(0, 1));
}

}  // namespace
}  // namespace temper::mixers
