// Integers with zero points as compressed-tensors writes them.
#include "checkpoints/quantized_test_support.h"
#include "foreign/compressed_parts.h"
#include "foreign/modelopt_parts.h"
#include "quant/packing.h"
#include "quant/zero_points.h"

namespace temper::foreign {
namespace {

using checkpoints::zeros;

std::vector<uint8_t> bytes_in(const Tensor& tensor) {
  const Tensor compact = tensor.contiguous();
  const auto* const from = static_cast<const uint8_t*>(compact.raw());
  return {from, from + compact.bytes()};
}

Tensor signed_zeros(const quant::Element& element, const Tensor& zeros) {
  const Tensor found = Tensor::empty(zeros.shape(), DType::kI8);
  for (int64_t i = 0; i < zeros.numel(); ++i)
    found.data<int8_t>()[i] = static_cast<int8_t>(quant::number_of(element, zeros.data<uint8_t>()[i]));
  return found;
}

// Codes, scales and packed zero points: the same bytes, under the same names and in the same shapes.
TEST(CompressedZeroPoints, HaveTheBytesOfCompressedTensors) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/compressed.json");
  for (const auto& [golden, name, groups] :
       {std::tuple{"int4 in groups with zero points", "W4A16_ASYM", 2},
        {"int8 in groups, packed", "W8A16_ASYM in blocks", 2},
        {"int4 by channel with zero points", "W4A16_ASYM per channel", 1},
        {"int8 by channel with zero points", "W8A8_ASYM", 1}}) {
    SCOPED_TRACE(golden);
    const ModeloptAlgorithm& algorithm = *find_compressed_algorithm(name);
    EXPECT_TRUE(only_compressed(algorithm));
    EXPECT_EQ(compressed_format(algorithm), cases.at(golden).at("config").at("format").as_string());
    const Tensor weight = checkpoints::recorded(cases.at(golden).at("weight"));
    const int64_t rows = weight.dim(0), columns = weight.dim(1);
    const quant::Element& element = algorithm.element;
    const auto encoded =
        quant::encode_with_zeros("m.x", element, weight, quant::bounds_of(weight, {rows, groups}));
    const Tensor codes = quant::unpacked_columns(encoded.codes, element.bits);
    const Shape of_scales = algorithm.scale_shapes(rows, columns, columns / groups).front();
    std::map<std::string, Tensor> written;
    const auto write = [&](const char* ending, const Tensor& tensor) {
      const TensorInfo info{std::string("m.x.") + ending, tensor.shape(), tensor.dtype()};
      const std::vector<TensorInfo> infos = compressed_infos(algorithm, info);
      const std::vector<Tensor> tensors = compressed_tensors(algorithm, info, tensor);
      ASSERT_EQ(infos.size(), tensors.size());
      for (size_t i = 0; i < infos.size(); ++i) {
        EXPECT_EQ(tensors[i].shape(), infos[i].shape) << infos[i].name;
        EXPECT_EQ(tensors[i].dtype(), infos[i].dtype) << infos[i].name;
        written[infos[i].name] = tensors[i];
      }
    };
    write("weight", element.bits == 8 ? seen_as(codes, DType::kI8) : codes);
    write("weight_scale", encoded.steps.reshape(of_scales));
    write("weight_zero_point", signed_zeros(element, encoded.zeros).reshape(of_scales));
    const auto& expected = cases.at(golden).at("tensors").as_object();
    EXPECT_EQ(written.size(), expected.size());
    for (const auto& [part, tensor] : expected) {
      ASSERT_EQ(written.count("m.x." + part), 1u) << part;
      EXPECT_EQ(written.at("m.x." + part).shape(), checkpoints::recorded(tensor).shape()) << part;
      EXPECT_EQ(bytes_in(written.at("m.x." + part)), bytes_in(checkpoints::recorded(tensor))) << part;
    }
  }
}

TEST(CompressedZeroPoints, NamesOfForms) {
  EXPECT_EQ(find_compressed_algorithm("W4A16_AWQ"), nullptr);
  EXPECT_FALSE(only_compressed(*find_modelopt_algorithm("W4A16_AWQ")));
  EXPECT_EQ(find_modelopt_algorithm("W4A16_ASYM"), nullptr);
}

}  // namespace
}  // namespace temper::foreign
