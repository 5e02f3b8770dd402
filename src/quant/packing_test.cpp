#include "quant/packing.h"

#include "base/json/json.h"
#include "quant/number_format.h"
#include "quant/zero_points.h"
#include "tests/support/decoded.h"
#include "tests/support/op_testing.h"

namespace temper::quant {
namespace {

using op_testing::expect_error;

const Json& packing_cases() {
  static const Json file =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/packing.json");
  return file;
}

Shape shape_in(const Json& sizes) {
  const auto& all = sizes.as_array();
  if (all.size() == 2) return {all[0].as_int(), all[1].as_int()};
  return {all[0].as_int(), all[1].as_int(), all[2].as_int()};
}

Tensor floats_in(const Json& bits, const Shape& shape) {
  std::vector<float> values;
  for (const Json& value : bits.as_array())
    values.push_back(std::bit_cast<float>(static_cast<int32_t>(value.as_int())));
  return Tensor::from<float>(values, shape);
}

std::vector<uint8_t> bytes_in(const Json& values) {
  std::vector<uint8_t> bytes;
  for (const Json& value : values.as_array()) bytes.push_back(static_cast<uint8_t>(value.as_int()));
  return bytes;
}

template <class T>
std::vector<T> all_of(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}

Tensor counted_codes(const Shape& shape, int bits) {
  std::vector<uint8_t> codes(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>((i * 37 + 11) & ((1u << bits) - 1));
  return Tensor::from<uint8_t>(codes, shape);
}

// Bit b of code c of a row is bit (c · bits + b) of its bytes.
TEST(Packing, CodesOfARowAreAStreamOfBits) {
  for (const int bits : {2, 4, 6}) {
    const Tensor codes = counted_codes({3, 8}, bits), packed = packed_columns("w", codes, bits);
    EXPECT_EQ(packed.shape(), (Shape{3, bits}));
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t bit = 0; bit < 8 * bits; ++bit) {
        const int found = packed.data<uint8_t>()[row * bits + bit / 8] >> (bit % 8) & 1;
        EXPECT_EQ(found, codes.data<uint8_t>()[row * 8 + bit / bits] >> (bit % bits) & 1)
            << bits << " " << bit;
      }
    EXPECT_EQ(all_of<uint8_t>(unpacked_columns(packed, bits)), all_of<uint8_t>(codes));
  }
  for (const int bits : {3, 5, 7, 8}) {
    const Tensor codes = counted_codes({3, 5}, bits);
    EXPECT_EQ(all_of<uint8_t>(packed_columns("w", codes, bits)), all_of<uint8_t>(codes));
  }
}

TEST(Packing, Int4WeightsAreBytesOfModelOpt) {
  for (const Json& c : packing_cases().at("int4").as_array()) {
    const Tensor x = floats_in(c.at("x"), shape_in(c.at("shape"))),
                 amax = floats_in(c.at("amax"), shape_in(c.at("amax_shape")));
    const Tensor codes = unpacked_columns(encode("w", format_named("int4"), x, amax).codes, 4);
    const Tensor packed = packed_rows("w", codes);
    EXPECT_EQ(all_of<uint8_t>(packed), bytes_in(c.at("packed")));
    EXPECT_EQ(packed.dim(-2), x.dim(-2) / 2);
    EXPECT_EQ(all_of<uint8_t>(unpacked_rows(packed)), all_of<uint8_t>(codes));
  }
}

TEST(ZeroPoints, AreThoseOfTorch) {
  const Element element = integer_element(8, false, true);
  for (const Json& c : packing_cases().at("zero_points").as_array()) {
    const Tensor x = floats_in(c.at("x"), shape_in(c.at("shape")));
    const EncodedWithZeros found = encode_with_zeros("x", element, x, bounds_of(x, {x.dim(0), 1}));
    EXPECT_EQ(all_of<float>(found.steps), all_of<float>(floats_in(c.at("steps"), {x.dim(0), 1})));
    EXPECT_EQ(all_of<uint8_t>(found.zeros), bytes_in(c.at("zeros")));
    EXPECT_EQ(all_of<uint8_t>(found.codes), bytes_in(c.at("codes")));
    EXPECT_EQ(all_of<float>(decode_with_zeros(element, found, DType::kF32)),
              all_of<float>(floats_in(c.at("y"), x.shape())));
  }
}

// Zero is exact, and nothing is further from its value than one step (half of it by rounding, half by the
// zero's): for every width, signed or not, in groups of any kind.
TEST(ZeroPoints, ValuesAreWithinAStepAndZeroIsExact) {
  for (const int bits : {2, 3, 4, 5, 6, 7, 8})
    for (const bool is_unsigned : {true, false})
      for (const double shift : {0.0, 0.7, -0.7}) {
        const Element element = integer_element(bits, false, is_unsigned);
        op_testing::Doubles values = op_testing::normal(7, {2, 4, 16});
        for (double& value : values) value = value * 0.2 + shift;
        values[5] = 0;
        const Tensor x = op_testing::tensor_of(values, {2, 4, 16}, DType::kF32);
        for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 1, 1}, Shape{2, 4, 2}}) {
          const EncodedWithZeros encoded = encode_with_zeros("x", element, x, bounds_of(x, shape));
          const Tensor y = decode_with_zeros(element, encoded, DType::kF32);
          const Groups groups = groups_of("x", x.shape(), shape);
          EXPECT_EQ(y.data<float>()[5], 0);
          for (int64_t i = 0; i < x.numel(); ++i) {
            const int64_t group = groups.first(i / 16) + i % 16 / groups.width();
            const float step = encoded.steps.data<float>()[group];
            EXPECT_LE(std::abs(y.data<float>()[i] - x.data<float>()[i]), 1.001f * step) << bits;
          }
        }
      }
}

TEST(ZeroPoints, RangesThatAreEmptyTinyOrNotFinite) {
  const Element element = integer_element(4, false, true);
  const auto fake = [&](float low, float high, float x) {
    const ZeroPoint at = zero_point_of(element, low, high);
    return value_of(at, integer_of(element, at, x));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fake(0, 0, 0), 0);
  EXPECT_EQ(fake(-0x1p-30f, 0x1p-30f, 0x1p-30f), 0);
  EXPECT_EQ(fake(1, 2, 0), 0);  // widened to hold zero
  EXPECT_EQ(fake(0, 15, 1e30f), 15);
  EXPECT_EQ(fake(-15, 0, -1e30f), -15);
  for (const float bad : {kInfinity, std::nanf("")}) EXPECT_TRUE(std::isnan(fake(0, bad, 1)));
  EXPECT_TRUE(std::isnan(fake(-3e38f, 3e38f, 1)));
}

TEST(ZeroPoints, Refusals) {
  const Element element = integer_element(4, false, true);
  const auto call = [&](const std::vector<float>& values, const Shape& shape) {
    const Tensor x = Tensor::from<float>(values, {1, static_cast<int64_t>(values.size())});
    return [=] { encode_with_zeros("layers.0.mlp.up", element, x, bounds_of(x, shape)); };
  };
  expect_error(call({1, 2, 3}, {1, 1}),
               "[layers.0.mlp.up] has 3 columns, codes of 4 bits need a multiple of 2");
  expect_error(call({1, std::nanf("")}, {1, 1}), "[layers.0.mlp.up] a bound is nan: it has no code");
  expect_error(call({-3e38f, 3e38f}, {1, 1}),
               "[layers.0.mlp.up] the width of a range is nan: it has no code");
  expect_error(
      [] {
        packed_rows("layers.0.mlp.up", Tensor::zeros({3, 4}, DType::kU8));
      },
      "[layers.0.mlp.up] has 3 rows, codes of 4 bits in pairs of rows need an even number");
}

}  // namespace
}  // namespace temper::quant
