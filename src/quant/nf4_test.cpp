#include "quant/nf4.h"

#include <algorithm>
#include <cmath>

#include "base/json/json.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"

namespace temper::quant {
namespace {

std::vector<float> floats(const Json& bits) {
  std::vector<float> values;
  for (const Json& value : bits.as_array())
    values.push_back(std::bit_cast<float>(static_cast<int32_t>(value.as_int())));
  return values;
}

std::vector<uint8_t> bytes(const Json& list) {
  std::vector<uint8_t> values;
  for (const Json& value : list.as_array()) values.push_back(static_cast<uint8_t>(value.as_int()));
  return values;
}

const Json& golden() {
  static const Json file =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/nf4.json");
  return file;
}

Tensor values_of(const Json& c) {
  const auto& sizes = c.at("shape").as_array();
  std::vector<float> values;
  if (const Json* integers = c.find("x_4096ths")) {
    for (const Json& value : integers->as_array())
      values.push_back(static_cast<float>(value.as_int()) / 4096);
  } else {
    values = floats(c.at("x"));
  }
  return Tensor::from<float>(values, {sizes[0].as_int(), sizes[1].as_int()});
}

TEST(Nf4, TablesAreThoseOfBitsandbytes) {
  EXPECT_EQ(floats(golden().at("table")), std::vector<float>(kNf4Numbers.begin(), kNf4Numbers.end()));
  const auto& numbers = nf4_scale_numbers();
  EXPECT_EQ(floats(golden().at("dynamic_map")), std::vector<float>(numbers.begin(), numbers.end()));
}

// Its mean is summed in float32, in an order of its own: one unit of the last place.
TEST(Nf4, CodesAreThoseOfBitsandbytes) {
  for (const Json& c : golden().at("cases").as_array()) {
    SCOPED_TRACE(c.at("name").as_string());
    const Nf4 encoded = encode_nf4("w", values_of(c), true), single = encode_nf4("w", values_of(c), false);
    EXPECT_TRUE(std::ranges::equal(encoded.codes.values<uint8_t>(), single.codes.values<uint8_t>()));
    EXPECT_TRUE(std::ranges::equal(single.scales.values<float>(), floats(c.at("absmax"))));
    EXPECT_FALSE(single.is_double());
    const auto codes = encoded.codes.values<uint8_t>(), scale_codes = encoded.scale_codes.values<uint8_t>();
    EXPECT_EQ(std::vector<uint8_t>(codes.begin(), codes.end()), bytes(c.at("codes")));
    const float offset = std::bit_cast<float>(static_cast<int32_t>(c.at("offset").as_int()));
    EXPECT_LE(std::fabs(encoded.offset - offset), std::fabs(offset) * 0x1p-22f);
    EXPECT_EQ(std::vector<uint8_t>(scale_codes.begin(), scale_codes.end()), bytes(c.at("scale_codes")));
    const std::vector<float> scales = floats(c.at("scales"));
    ASSERT_EQ(encoded.scales.numel(), static_cast<int64_t>(scales.size()));
    for (size_t i = 0; i < scales.size(); ++i)
      EXPECT_NEAR(encoded.scales.data<float>()[i], scales[i],
                  std::fabs(offset) * 0x1p-22f + scales[i] * 0x1p-23f);
  }
}

TEST(Nf4, BadValuesAreRefused) {
  const auto encode = [](const std::vector<float>& values, const Shape& shape) {
    return [=] { encode_nf4("model.up", Tensor::from<float>(values, shape), true); };
  };
  std::vector<float> values(4 * 64, 1.f);
  values[130] = NAN;
  op_testing::expect_error(encode(values, {4, 64}),
                           "[model.up] row 2 holds a value that is not finite: it cannot be kept in nf4");
  op_testing::expect_error(encode({1, 2, 3}, {1, 3}),
                           "[model.up] has 3 columns: two codes of nf4 share a byte");
}

}  // namespace
}  // namespace temper::quant
