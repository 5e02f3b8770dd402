#include "tests/support/relative_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/op_testing.h"

namespace temper {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

Tensor row(const std::vector<float>& values) { return Tensor::from(values); }

const std::vector<double (*)(const Tensor&, const Tensor&)> kMeasures{
    [](const Tensor& found, const Tensor& expected) { return relative_error(found, expected); },
    [](const Tensor& found, const Tensor& expected) { return relative_error(found, expected, 1); },
    relative_norm_error, worst_row_error};

TEST(RelativeError, WhatIsNotFiniteNeverPasses) {
  for (const auto& measure : kMeasures)
    for (const float bad : {kNan, kInf, -kInf}) {
      EXPECT_EQ(measure(row({1, bad, 3}), row({1, 2, 3})), kInf) << bad;
      EXPECT_EQ(measure(row({1, 2, 3}), row({1, bad, 3})), kInf) << bad;
      EXPECT_EQ(measure(row({1, bad, 3}), row({1, bad, 3})), kInf) << bad;
      EXPECT_EQ(measure(row({bad, 2, 3}), row({1, 2, kInf})), kInf) << bad;
      EXPECT_EQ(measure(row({bad, 2, 3}).to(DType::kBF16), row({1, 2, 3})), kInf) << bad;
    }
}

TEST(RelativeError, OtherShapesNeverPass) {
  for (const auto& measure : kMeasures) {
    EXPECT_EQ(measure(row({1, 2}), row({1, 2, 3})), kInf);
    EXPECT_EQ(measure(row({1, 2, 3}), row({1, 2})), kInf);
    EXPECT_EQ(measure(row({1, 2, 3, 4}).reshape({2, 2}), row({1, 2, 3, 4})), kInf);
    EXPECT_EQ(measure(row({}), row({1})), kInf);
    EXPECT_EQ(measure(Tensor(), row({1})), kInf);
    EXPECT_EQ(measure(row({1, 2, 3, 4}).reshape({1, 2, 2}), row({1, 2, 3, 4}).reshape({2, 2})), 0);
  }
}

TEST(RelativeError, WhatIsZeroHasToBeZero) {
  for (const auto& measure : kMeasures) EXPECT_EQ(measure(row({0, 0}), row({0, 0})), 0);
  EXPECT_EQ(relative_error(row({0, 1e-20f}), row({0, 0})), kInf);
  EXPECT_EQ(relative_norm_error(row({0, 1e-10f}), row({0, 0})), kInf);
  EXPECT_EQ(worst_row_error(row({0, 1e-10f}), row({0, 0})), kInf);
  EXPECT_EQ(relative_error(row({0, 0.25f}), row({0, 0}), 1), 0.25);
}

TEST(RelativeError, ByElementsByNormAndByRows) {
  const Tensor expected = row({3, 4, 0, 0}).reshape({2, 2}), found = row({3, 4, 0, 2}).reshape({2, 2});
  EXPECT_DOUBLE_EQ(relative_error(found, expected), 0.5);
  EXPECT_DOUBLE_EQ(relative_error(found, expected, 8), 0.25);
  EXPECT_DOUBLE_EQ(relative_norm_error(found, expected), 0.4);
  EXPECT_DOUBLE_EQ(worst_row_error(found, expected), 2 / std::sqrt(12.5));
}

// The comparison of the op tests.
TEST(Close, WhatIsNotFiniteNeverPasses) {
  using op_testing::close;
  const double nan = kNan, inf = kInf;
  EXPECT_TRUE(close({1, 2}, {1, 2}, 0));
  for (const double bad : {nan, inf, -inf}) {
    EXPECT_FALSE(close({1, bad}, {1, 2}, 1e9)) << bad;
    EXPECT_FALSE(close({1, 2}, {1, bad}, 1e9)) << bad;
    EXPECT_FALSE(close({1, bad}, {1, bad}, 1e9)) << bad;
    EXPECT_FALSE(close({bad, 2}, {1, inf}, 1e9)) << bad;
  }
  EXPECT_FALSE(close({1}, {1, 2}, 1));
}

}  // namespace
}  // namespace temper
