// What the forms of quantized folders write of a matrix is read again as values near it.
#include <cmath>
#include <limits>

#include "checkpoints/quantized_test_support.h"
#include "foreign/matrix_writers.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;

using checkpoints::zeros;

// Numbers from -1 to 1 that are not even.
Tensor numbers(int64_t rows, int64_t columns) {
  const Tensor all = Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) {
    const auto bits = static_cast<uint32_t>((i + 1) * 2654435761u);
    all.data<float>()[i] = static_cast<float>(bits >> 8) * 0x1p-23f - 1.f;
  }
  return all;
}

float largest_of(const Tensor& values) {
  float largest = 0;
  for (const float value : values.values<float>()) largest = std::max(largest, std::fabs(value));
  return largest;
}

class Writers : public checkpoints::Quantized {
 protected:
  // A recorded matrix.
  void use(const Json& golden, int64_t rows, int64_t columns) {
    shape(rows, columns);
    for (const auto& [part, tensor] : golden.at("tensors").as_object())
      add("m.x." + part, checkpoints::recorded(tensor));
    config(golden.at("config").dump());
  }
  Tensor numbers_of_shape() const {
    const Shape& shape = table_.find("x")->shape;
    return numbers(shape[0], shape[1]);
  }
  WritesMatrix writer() {
    write();
    const ModelFolder folder = ModelFolder::open(folder_.path());
    const Shape& shape = table_.find("x")->shape;
    return folder.form()->writer(folder, {"m.x.weight", shape[0], shape[1]});
  }
  std::string encode_error(const Tensor& values) {
    const WritesMatrix own = writer();
    return error_of([&] { own->encode(values, largest_of(values)); });
  }
  // What the folder means after `values` are written in it.
  Values rewritten(const Tensor& values) {
    const WritesMatrix own = writer();
    if (own == nullptr) {
      ADD_FAILURE() << "it is only read";
      return {};
    }
    const std::vector<TensorInfo> infos = own->list();
    const std::vector<Tensor> tensors = own->encode(values, largest_of(values));
    EXPECT_EQ(tensors.size(), infos.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].shape(), infos[i].shape) << infos[i].name;
      EXPECT_EQ(tensors[i].dtype(), infos[i].dtype) << infos[i].name;
      std::erase_if(tensors_, [&](const auto& each) { return each.first == infos[i].name; });
      add(infos[i].name, tensors[i]);
    }
    return load();
  }
  // So near, as a part of the largest one; zeros exactly; and what has no code is refused.
  void expect_near(float part) {
    const Tensor values = numbers_of_shape();
    const Values read = rewritten(values);
    ASSERT_EQ(static_cast<int64_t>(read.size()), values.numel());
    float furthest = 0;
    for (size_t i = 0; i < read.size(); ++i)
      furthest = std::max(furthest, std::fabs(read[i] - values.values<float>()[i]));
    EXPECT_LE(furthest, part * largest_of(values));
    EXPECT_GT(furthest, 0) << "as if there were no codes";
    const Values zeros(read.size(), 0.f);
    EXPECT_EQ(rewritten(Tensor::zeros(values.shape(), DType::kF32, MemoryTag::kData)), zeros);
    values.data<float>()[7] = std::numeric_limits<float>::infinity();
    EXPECT_NE(encode_error(values), "");
    values.data<float>()[7] = std::nanf("");
    EXPECT_NE(encode_error(values), "");
  }
};

TEST_F(Writers, EveryAlgorithmOfModelopt) {
  struct Case {
    std::string name, more;
    int64_t rows, columns;
    float near;  // half of the widest step
  };
  const std::string sixteen = R"(, "group_size": 16)";
  for (const Case& each : std::vector<Case>{{"FP8", "", 6, 32, 1 / 28.f},
                                            {"FP8_PER_CHANNEL_PER_TOKEN", "", 6, 32, 1 / 28.f},
                                            {"fp8_pb_wo", "", 150, 140, 1 / 28.f},
                                            {"fp8_pb_wo", "", 128, 256, 1 / 28.f},
                                            {"W8A8_SQ_PER_CHANNEL", "", 6, 32, 1 / 253.f},
                                            {"W8A16", "", 6, 32, 1 / 253.f},
                                            {"W4A16_AWQ", sixteen, 6, 32, 1 / 13.9f},
                                            {"W4A8_AWQ", sixteen, 6, 32, 1 / 9.f},
                                            {"NVFP4", "", 6, 32, 1 / 5.f},
                                            {"W4A16_NVFP4", sixteen, 6, 32, 1 / 5.f},
                                            {"NVFP4_AWQ", sixteen, 6, 32, 1 / 5.f},
                                            {"MXFP8", "", 6, 64, 1 / 14.f},
                                            {"mxfp4", "", 6, 64, 1 / 3.f},
                                            {"W4A8_MXFP4_FP8", "", 6, 64, 1 / 3.f}}) {
    SCOPED_TRACE(each.name);
    shape(each.rows, each.columns);
    algorithm(each.name, each.more);
    expect_near(each.near);
  }
}

TEST_F(Writers, AlgorithmsThatAreOnlyRead) {
  shape(4, 32);
  algorithm("W4A8_NVFP4_FP8");
  EXPECT_EQ(writer(), nullptr);
  config(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
             "quantized_layers": {"m.y": {"quant_algo": "FP8"}}})");
  EXPECT_EQ(writer(), nullptr) << "it is not named";
  config(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
             "quantized_layers": {"m.x": {"quant_algo": "FP8"}}})");
  ASSERT_NE(writer(), nullptr);
  EXPECT_TRUE(writer()->shares_whole());
  algorithm("W8A16");
  EXPECT_FALSE(writer()->shares_whole());
  algorithm("W4A8_AWQ");
  EXPECT_TRUE(writer()->shares_whole());
}

TEST_F(Writers, BlocksOfAnotherWidthThanTheFormatAreRefused) {
  shape(4, 64);
  algorithm("NVFP4", R"(, "group_size": 32)");
  const WritesMatrix own = writer();
  EXPECT_EQ(error_of([&] { own->list(); }),
            "[m.x] is in blocks of 32 in its folder, but NVFP4 is written in blocks of 16");
}

TEST_F(Writers, EveryFormatOfCompressedTensors) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/compressed.json");
  for (const auto& [name, near] :
       std::vector<std::pair<std::string, float>>{{"int4 in groups", 1 / 13.9f},
                                                  {"int4 in groups with zero points", 1 / 13.9f},
                                                  {"int8 in groups, packed", 1 / 253.f},
                                                  {"int4 by channel with zero points", 1 / 13.9f},
                                                  {"int8 by channel with zero points", 1 / 253.f},
                                                  {"int8 by channel", 1 / 253.f},
                                                  {"fp8 by channel", 1 / 28.f},
                                                  {"fp8 as a whole", 1 / 28.f},
                                                  {"nvfp4", 1 / 5.f},
                                                  {"mxfp4", 1 / 3.f},
                                                  {"mxfp8", 1 / 14.f}}) {
    SCOPED_TRACE(name);
    use(cases.at(name), 12, 32);
    expect_near(near);
  }
}

// A matrix [8, 16] of compressed-tensors, and whether it is written as well as read.
struct HeldForm {
  std::string what, format;  // and more of the configuration
  checkpoints::Parts parts;
  bool written;
};

class CompressedWriters : public Writers {
 protected:
  void expect(const std::vector<HeldForm>& all) {
    for (const HeldForm& each : all) {
      SCOPED_TRACE(each.what);
      shape(8, 16);
      for (const auto& [part, tensor] : each.parts) add("m.x." + part, tensor);
      config(R"({"quant_method": "compressed-tensors", "format": ")" + each.format + "}");
      EXPECT_EQ(load_error(), "");
      EXPECT_EQ(writer() != nullptr, each.written);
    }
  }
  static checkpoints::Part scales(const Shape& shape) { return {"weight_scale", zeros(shape, DType::kF32)}; }
  static checkpoints::Part points(const Shape& shape, DType dtype) {
    return {"weight_zero_point", zeros(shape, dtype)};
  }

  const checkpoints::Part bytes_{"weight", zeros({8, 16}, DType::kI8)},
      fp8_{"weight", zeros({8, 16}, DType::kF8E4M3)}, narrow_{"weight_packed", zeros({8, 2}, DType::kI32)},
      wide_{"weight_packed", zeros({8, 4}, DType::kI32)};
  const std::string packed_ = R"(pack-quantized")", integers_ = R"(int-quantized")",
                    floats_ = R"(float-quantized")";
};

TEST_F(CompressedWriters, BySizesOfGroups) {
  const auto tiles = [&](const std::string& size) {
    return floats_ + R"(, "config_groups": {"group_0": {"weights": {"block_structure": )" + size + "}}}";
  };
  expect({{"int4 in groups", packed_, {narrow_, scales({8, 2})}, true},
          {"int4 of one scale", packed_, {narrow_, scales({1})}, false},
          {"int8 in words, by row", packed_, {wide_, scales({8, 1})}, true},
          {"int8 in words, in groups", packed_, {wide_, scales({8, 2})}, false},
          {"int8 in words, one scale", packed_, {wide_, scales({1})}, false},
          {"int8 by row", integers_, {bytes_, scales({8})}, true},
          {"int8 of one scale", integers_, {bytes_, scales({1})}, false},
          {"int8 in groups", integers_, {bytes_, scales({8, 2})}, false},
          {"fp8 in groups", floats_, {fp8_, scales({8, 2})}, false},
          {"fp8 by row", floats_, {fp8_, scales({8, 1})}, true},
          {"fp8 in square tiles", tiles("[8, 8]"), {fp8_, scales({1, 2})}, true},
          {"fp8 in flat tiles", tiles("[4, 8]"), {fp8_, scales({2, 2})}, false},
          {"fp8 in one tile", tiles("[16, 16]"), {fp8_, scales({1, 1})}, true},
          {"fp8 by rows, not tiles", tiles("[4, 4]"), {fp8_, scales({8})}, true}});
}

// In words a zero point of 0 is stored as the middle.
TEST_F(CompressedWriters, ByZeroPointsAndOrders) {
  const checkpoints::Part some{"weight_zero_point",
                               Tensor::from<int8_t>(std::vector<int8_t>{1, 0, 0, 0, 0, 0, 0, 0}, {8, 1})};
  std::vector<int32_t> groups(16);
  for (size_t i = 0; i < 16; ++i) groups[i] = static_cast<int32_t>(i % 2);
  expect(
      {{"all are 0", integers_, {bytes_, scales({8, 1}), points({8, 1}, DType::kI8)}, false},
       {"some are not", integers_, {bytes_, scales({8, 1}), some}, true},
       {"one of all", integers_, {bytes_, scales({1}), points({1}, DType::kI8)}, false},
       {"in groups of bytes", integers_, {bytes_, scales({8, 2}), points({8, 2}, DType::kI8)}, false},
       {"of words, by row", packed_, {narrow_, scales({8, 1}), points({1, 1}, DType::kI32)}, true},
       {"of wide words", packed_, {wide_, scales({8, 1}), points({2, 1}, DType::kI32)}, true},
       {"in an order", packed_, {narrow_, scales({8, 2}), {"weight_g_idx", Tensor::from(groups)}}, false}});
}

TEST_F(Writers, BitsandbytesGptqAndAwq) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/folders.json");
  const auto use_case = [&](const std::string& name) {
    const Json::Array& sizes = cases.at(name).at("shape").as_array();
    use(cases.at(name), sizes[0].as_int(), sizes[1].as_int());
  };
  for (const auto& [name, near] :
       std::vector<std::pair<std::string, float>>{{"bitsandbytes nf4", 0.16f},
                                                  {"bitsandbytes nf4 with double quantization", 0.17f},
                                                  {"gptq 2 bits, symmetric", 1.01f},
                                                  {"gptq 3 bits", 1 / 5.f},
                                                  {"gptq 4 bits", 1 / 13.f},
                                                  {"gptq 4 bits, format gptq_v2", 1 / 13.f},
                                                  {"gptq 8 bits, one group", 1 / 200.f},
                                                  {"awq", 1 / 13.f}}) {
    SCOPED_TRACE(name);
    use_case(name);
    expect_near(near);
    EXPECT_FALSE(writer()->shares_whole());
  }
  for (const char* name : {"bitsandbytes fp4 with double quantization, stored as bfloat16",
                           "bitsandbytes int8", "gptq 4 bits, in the order of activations"}) {
    use_case(name);
    EXPECT_EQ(writer(), nullptr) << name;
  }
  // Codes in another dtype of the same bytes.
  use_case("bitsandbytes nf4");
  for (auto& [name, tensor] : tensors_)
    if (name == "m.x.weight")
      tensor = Tensor::borrow(tensor.raw(), {240, 1}, DType::kF16, std::make_shared<Tensor>(tensor));
  EXPECT_EQ(load_error(), "");
  EXPECT_EQ(writer(), nullptr);
}

// Zeros that are stored less one are at least 1, so that values of one sign keep theirs.
TEST_F(Writers, WordsOfValuesOfOneSign) {
  for (const std::string format : {"gptq", "gptq_v2"})
    for (const float sign : {1.f, -1.f}) {
      SCOPED_TRACE(fmt::format("{} {}", format, sign));
      shape(32, 40);
      add("m.x.qweight", Tensor::zeros({5, 32}, DType::kI32, MemoryTag::kData));
      add("m.x.qzeros", Tensor::zeros({3, 4}, DType::kI32, MemoryTag::kData));
      add("m.x.scales", Tensor::zeros({3, 32}, DType::kF16, MemoryTag::kData));
      config(R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": ")" + format +
             "\"}");
      const Tensor values = numbers_of_shape();
      for (float& value : values.values<float>()) value = sign * (2 + value);
      const Values read = rewritten(values);
      for (size_t i = 0; i < read.size(); ++i) ASSERT_NEAR(read[i], values.values<float>()[i], 0.115f) << i;
    }
}

TEST_F(Writers, TilesOfFp8) {
  struct Case {
    std::string tile, scale;
    Shape scales;
    bool written;
  };
  for (const Case& each : std::vector<Case>{{"[8, 8]", "weight_scale_inv", {2, 3}, true},
                                            {"[8, 8]", "weight_scale", {2, 3}, false},
                                            {"[8, 4]", "weight_scale_inv", {2, 5}, false},
                                            {"null", "weight_scale_inv", {}, false}}) {
    SCOPED_TRACE(each.tile + each.scale);
    shape(12, 20);
    add("m.x.weight", Tensor::zeros({12, 20}, DType::kF8E4M3, MemoryTag::kData));
    add("m.x." + each.scale, Tensor::zeros(each.scales, DType::kF32, MemoryTag::kData));
    config(R"({"quant_method": "fp8", "weight_block_size": )" + each.tile + "}");
    EXPECT_EQ(load_error(), "");
    if (each.written)
      expect_near(1 / 28.f);
    else
      EXPECT_EQ(writer(), nullptr);
  }
}

}  // namespace
}  // namespace temper::foreign
