#include "mixers/gated_delta/delta_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace temper::mixers {
namespace {

TEST(DeltaState, StaysOrBeginsAgain) {
  const GatedDeltaConfig config{
      .hidden = 8, .key_heads = 1, .heads = 2, .key_dim = 3, .value_dim = 4, .width = 4};
  DeltaState state(config, DType::kBF16);
  EXPECT_EQ(state.state().shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(state.state().dtype(), DType::kF32);
  EXPECT_EQ(state.window().shape(), (Shape{1, 3, 14}));
  EXPECT_EQ(state.window().dtype(), DType::kBF16);
  const auto values = state.state().values<float>();
  const auto all_are = [&](float expected) {
    return std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; });
  };
  EXPECT_TRUE(all_are(0));
  std::fill(values.begin(), values.end(), 1.f);
  state.reserve(100, 5);
  EXPECT_EQ(state.truncate(5, 5), 5);
  EXPECT_TRUE(all_are(1));
  // Whatever is there, as after memory that was given back: none of it is left.
  std::fill(values.begin(), values.end(), std::nanf(""));
  for (BFloat16& value : state.window().values<BFloat16>()) value = BFloat16(std::nanf(""));
  EXPECT_EQ(state.truncate(4, 5), 0);
  EXPECT_TRUE(all_are(0));
  for (const BFloat16 value : state.window().values<BFloat16>()) EXPECT_EQ(static_cast<float>(value), 0);
}

}  // namespace
}  // namespace temper::mixers
