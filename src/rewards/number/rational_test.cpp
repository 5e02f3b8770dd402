#include "rewards/number/rational.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "rewards/number/read_number.h"

namespace temper::rewards {
namespace {

// Against machine arithmetic, on all fractions of small numbers.
TEST(Rational, FractionsAgreeWithWholeNumbers) {
  const auto written = [](int64_t top, int64_t bottom) {
    return *whole_number(fmt::format("{}/{}", top, bottom));
  };
  for (int64_t a = -6; a <= 6; ++a)
    for (int64_t b = 1; b <= 6; ++b)
      for (int64_t c = -6; c <= 6; ++c)
        for (int64_t d = 1; d <= 6; ++d) {
          const Rational left = written(a, b).value, right = written(c, d).value;
          EXPECT_EQ(left == right, a * d == c * b);
          EXPECT_TRUE(left + right == written(a * d + c * b, b * d).value);
          EXPECT_TRUE(left * right == written(a * c, b * d).value);
          EXPECT_EQ(differ_at_most(left, right, written(1, 2).value), 2 * std::abs(a * d - c * b) <= b * d);
        }
}

TEST(Rational, NaturalNumbersOfManyLimbs) {
  const Natural big("123456789012345678901234567890"), one("1");
  EXPECT_TRUE(big * big == Natural("15241578753238836750495351562536198787501905199875019052100"));
  EXPECT_TRUE(Natural("999999999999999999") + one == Natural("1000000000000000000"));
  EXPECT_TRUE(Natural("1000000000000000000") - one == Natural("999999999999999999"));
  EXPECT_TRUE((big - big).is_zero());
  EXPECT_TRUE(Natural("1000000000") > Natural("999999999"));
  EXPECT_TRUE(Natural("000") == Natural());
}

}  // namespace
}  // namespace temper::rewards
