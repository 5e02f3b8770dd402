#include "primitives/nf4.h"

#include <algorithm>
#include <cmath>

#include "base/json/json.h"
#include "tests/support/op_testing.h"

namespace temper::primitives {
namespace {

using namespace op_testing;

// Each matrix of a stack has the bits of its codes' meaning, in every dtype, on every device.
TEST(Nf4Matrix, OfSeveralMatricesHasTheMeaningOfTheirCodes) {
  const std::vector<int64_t> rows{5, 3, 40};
  for (const bool is_double : {false, true})
    for (const int64_t columns : {40, 64, 528})
      for (const HardwareFacts& machine : machines()) {
        const Nf4Matrix matrix = empty_nf4(rows, columns, is_double, machine.device);
        Doubles expected;
        int64_t first = 0;
        for (const int64_t count : rows) {
          const Shape shape{count, columns};
          const quant::Nf4 encoded = quant::encode_nf4(
              "w", tensor_of(normal(static_cast<uint64_t>(count), shape, 0.02), shape, DType::kF32),
              is_double);
          set_nf4(matrix, first, encoded);
          first += count;
          for (int64_t i = 0; i < shape.numel(); ++i) {
            const int64_t block = i / 64;
            const uint8_t two = encoded.codes.data<uint8_t>()[i / 2];
            float magnitude = encoded.scales.data<float>()[is_double ? block / 256 : block];
            if (is_double) {
              const uint8_t code = encoded.scale_codes.data<uint8_t>()[block];
              const float product = quant::nf4_scale_numbers()[code] * magnitude;
              magnitude = product + encoded.offset;
            }
            expected.push_back(quant::kNf4Numbers[i % 2 == 0 ? two >> 4 : two & 15] * magnitude);
          }
        }
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          SCOPED_TRACE(fmt::format("{} columns, {}, {}", columns, to_string(dtype), machine.name));
          const Tensor wanted = tensor_of(expected, {first, columns}, dtype);
          EXPECT_EQ(values_of(dequantized(matrix, dtype)), values_of(wanted));
        }
      }
}

// Random numbers of a normal distribution come back within 10 % of their deviation, on average.
TEST(Nf4Matrix, IsNearTheValues) {
  const Shape shape{64, 256};
  const Doubles values = normal(1, shape, 0.02);
  const Nf4Matrix matrix = empty_nf4({64}, 256, true, {});
  set_nf4(matrix, 0, quant::encode_nf4("w", tensor_of(values, shape, DType::kF32), true));
  const Doubles found = values_of(dequantized(matrix, DType::kF32));
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) squares += (found[i] - values[i]) * (found[i] - values[i]);
  EXPECT_LT(std::sqrt(squares / static_cast<double>(values.size())), 0.1 * 0.02);
}

// What bitsandbytes decodes, from what it stored.
TEST(Nf4Matrix, DecodesWhatBitsandbytesStored) {
  const Json file = Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/nf4.json");
  const auto floats = [](const Json& bits) {
    std::vector<float> values;
    for (const Json& value : bits.as_array())
      values.push_back(std::bit_cast<float>(static_cast<int32_t>(value.as_int())));
    return values;
  };
  const auto bytes = [](const Json& list, const Shape& shape) {
    const Tensor tensor = Tensor::empty(shape, DType::kU8);
    size_t i = 0;
    for (const Json& value : list.as_array())
      tensor.data<uint8_t>()[i++] = static_cast<uint8_t>(value.as_int());
    return tensor;
  };
  int compared = 0;
  for (const Json& c : file.at("cases").as_array()) {
    if (c.find("decoded") == nullptr) continue;
    const int64_t rows = c.at("shape").as_array()[0].as_int(), columns = c.at("shape").as_array()[1].as_int();
    const auto blocks = static_cast<int64_t>(c.at("scale_codes").as_array().size());
    const quant::Nf4 encoded{bytes(c.at("codes"), {rows, columns / 2}), Tensor::from(floats(c.at("scales"))),
                             bytes(c.at("scale_codes"), {blocks}),
                             std::bit_cast<float>(static_cast<int32_t>(c.at("offset").as_int()))};
    for (const HardwareFacts& machine : machines()) {
      const Nf4Matrix matrix = empty_nf4({rows}, columns, true, machine.device);
      set_nf4(matrix, 0, encoded);
      for (const auto& [key, dtype] :
           {std::pair{"decoded", DType::kF32}, {"decoded_bfloat16", DType::kBF16}}) {
        const std::vector<float> expected = floats(c.at(key));
        EXPECT_EQ(values_of(dequantized(matrix, dtype)), Doubles(expected.begin(), expected.end()))
            << c.at("name").as_string() << " " << machine.name;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace temper::primitives
