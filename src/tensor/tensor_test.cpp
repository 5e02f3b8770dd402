#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace temper {
namespace {

Tensor counting(Shape shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.f);
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(Tensor, ViewsShareData) {
  const Tensor x = counting({4, 3});
  const Tensor rows = x.narrow(0, 1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_TRUE(rows.is_contiguous());
  const Tensor columns = x.narrow(1, 1, 2);
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_TRUE(columns.is_contiguous_from(1));
  rows.data<float>()[0] = 100;
  EXPECT_EQ(x.data<float>()[3], 100);
}

TEST(Tensor, CompactCopiesFollowStrides) {
  const Tensor t = counting({2, 3}).transpose(0, 1).contiguous();
  EXPECT_EQ(t.shape(), (Shape{3, 2}));
  EXPECT_EQ(std::vector<float>(t.values<float>().begin(), t.values<float>().end()),
            (std::vector<float>{0, 3, 1, 4, 2, 5}));
  const Tensor cut = counting({2, 2, 3}).narrow(2, 1, 2).contiguous();
  EXPECT_EQ(std::vector<float>(cut.values<float>().begin(), cut.values<float>().end()),
            (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
}

TEST(Tensor, ReshapeInfersAndRefuses) {
  EXPECT_EQ(counting({4, 3}).reshape({2, -1}).shape(), (Shape{2, 6}));
  EXPECT_THROW(counting({4, 3}).reshape({5, -1}), Error);
  EXPECT_THROW(counting({4, 3}).reshape({4, 4}), Error);
  EXPECT_THROW(counting({4, 3}).narrow(0, 3, 2), Error);
  EXPECT_THROW(counting({4}).data<int32_t>(), Error);
  EXPECT_THROW(checked_multiply(int64_t{1} << 40, int64_t{1} << 40), Error);
}

TEST(DType, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f)), 1.0f);                // tie, even below
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // tie, even above
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::max()))));
}

TEST(DType, Float16AgreesWithTheCompilerOnEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float expected = static_cast<float>(std::bit_cast<_Float16>(half.bits));
    const float found = static_cast<float>(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found));
      continue;
    }
    ASSERT_EQ(found, expected);
    for (const float value : {expected, std::nextafter(expected, 1e9f), expected * 1.00049f})
      ASSERT_EQ(Float16(value).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

// The meaning of a code, from the format's definition.
double meaning(uint32_t code) {
  const uint32_t exponent = (code >> 3) & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(1 + mantissa / 8.0, static_cast<int>(exponent) - 7);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t code_of(float value) { return Float8E4M3(value).bits; }

TEST(DType, Float8HasTheMeaningOfEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto value = static_cast<float>(std::bit_cast<Float8E4M3>(static_cast<uint8_t>(code)));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, meaning(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    EXPECT_EQ(code_of(value), code);
  }
}

TEST(DType, Float8RoundsToNearestEvenAndSaturates) {
  for (uint32_t code = 0; code < 0x7E; ++code) {
    const auto middle = static_cast<float>((meaning(code) + meaning(code + 1)) / 2);
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(code_of(middle), even);
    EXPECT_EQ(code_of(std::nextafter(middle, 0.f)), code);
    EXPECT_EQ(code_of(std::nextafter(middle, 1e9f)), code + 1);
    EXPECT_EQ(code_of(-middle), even | 0x80);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {448.f, 449.f, 464.f, 465.f, 480.f, 1e30f, kInfinity}) {
    EXPECT_EQ(code_of(value), 0x7E) << value;
    EXPECT_EQ(code_of(-value), 0xFE) << value;
  }
  EXPECT_EQ(code_of(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(code_of(-0.f), 0x80);
  EXPECT_EQ(code_of(std::nanf("")), 0x7F);
}

TEST(DType, NamesAreRead) {
  EXPECT_EQ(dtype_from_string("float8_e4m3fn"), DType::kF8E4M3);
  EXPECT_FALSE(is_float(DType::kF8E4M3));
  EXPECT_EQ(dtype_from_string("torch.bfloat16"), DType::kBF16);
  EXPECT_EQ(dtype_from_string("float8"), std::nullopt);
}

}  // namespace
}  // namespace temper
