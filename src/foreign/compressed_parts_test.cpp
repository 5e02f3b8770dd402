#include "foreign/compressed_parts.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include "tests/support/errors.h"

namespace temper::foreign {
namespace {

const ModeloptAlgorithm& algorithm_named(std::string_view name) {
  const ModeloptAlgorithm* found = find_compressed_algorithm(name);
  if (found == nullptr) found = find_modelopt_algorithm(name);
  invariant(found != nullptr, fmt::format("no algorithm is called {}", name));
  return *found;
}

std::string text_of(const std::vector<TensorInfo>& infos) {
  std::vector<std::string> all;
  for (const TensorInfo& info : infos)
    all.push_back(fmt::format("{} {} {}", info.name, to_string(info.dtype), to_string(info.shape)));
  return fmt::format("{}", fmt::join(all, "; "));
}

// A tensor of nvidia-modelopt's folders, and what compressed-tensors' have in its place.
struct NamedPart {
  std::string_view algorithm;
  TensorInfo info;
  std::string expected;
};

std::vector<NamedPart> named_parts() {
  const DType floats = DType::kF32, bytes = DType::kU8, fp8 = DType::kF8E4M3, small = DType::kI8;
  const std::string weight = "m.x.weight", scale = "m.x.weight_scale", second = "m.x.weight_scale_2",
                    zero = "m.x.weight_zero_point", input = "m.x.input_scale",
                    input_zero = "m.x.input_zero_point";
  return {
      {"FP8", {weight, {4, 32}, fp8}, "m.x.weight float8_e4m3fn [4, 32]"},
      {"FP8", {scale, {}, floats}, "m.x.weight_scale float32 [1]"},
      {"FP8", {input, {}, floats}, "m.x.input_scale float32 [1]"},
      {"FP8_PER_CHANNEL_PER_TOKEN", {scale, {4}, floats}, "m.x.weight_scale float32 [4, 1]"},
      {"fp8_pb_wo", {scale, {2, 1, 3, 1}, floats}, "m.x.weight_scale float32 [2, 3]"},
      {"fp8_pb_wo", {scale, {2, 3}, floats}, "m.x.weight_scale float32 [2, 3]"},
      {"W8A8_SQ_PER_CHANNEL", {weight, {4, 32}, small}, "m.x.weight int8 [4, 32]"},
      {"W8A8_SQ_PER_CHANNEL", {scale, {4}, floats}, "m.x.weight_scale float32 [4, 1]"},
      {"W8A16", {weight, {4, 33}, small}, "m.x.weight_packed int32 [4, 9]; m.x.weight_shape int64 [2]"},
      {"W4A16_AWQ", {weight, {2, 32}, bytes}, "m.x.weight_packed int32 [4, 4]; m.x.weight_shape int64 [2]"},
      {"W4A16_AWQ", {scale, {4, 2}, floats}, "m.x.weight_scale float32 [4, 2]"},
      {"NVFP4", {weight, {4, 16}, bytes}, "m.x.weight_packed uint8 [4, 16]"},
      {"NVFP4", {scale, {4, 2}, fp8}, "m.x.weight_scale float8_e4m3fn [4, 2]"},
      {"NVFP4", {second, {}, floats}, "m.x.weight_global_scale float32 [1]"},
      {"NVFP4", {input, {}, floats}, "m.x.input_global_scale float32 [1]"},
      {"mxfp4", {weight, {4, 16}, bytes}, "m.x.weight_packed uint8 [4, 16]"},
      {"mxfp4", {scale, {4, 1}, bytes}, "m.x.weight_scale uint8 [4, 1]"},
      {"MXFP8", {weight, {4, 32}, fp8}, "m.x.weight float8_e4m3fn [4, 32]"},
      {"W4A16_ASYM", {zero, {9, 2}, small}, "m.x.weight_zero_point int32 [2, 2]"},
      {"W4A16_ASYM per channel", {zero, {9}, small}, "m.x.weight_zero_point int32 [2, 1]"},
      {"W8A16_ASYM in blocks", {zero, {9, 2}, small}, "m.x.weight_zero_point int32 [3, 2]"},
      {"W8A8_ASYM", {zero, {4}, small}, "m.x.weight_zero_point int8 [4, 1]"},
      {"W8A8_ASYM", {input_zero, {}, small}, "m.x.input_zero_point int8 [1]"},
      {"W8A8", {input, {1}, floats}, "m.x.input_scale float32 [1]"},
  };
}

TEST(CompressedParts, NamesShapesAndDtypes) {
  for (const NamedPart& each : named_parts()) {
    const ModeloptAlgorithm& algorithm = algorithm_named(each.algorithm);
    SCOPED_TRACE(fmt::format("{} {}", each.algorithm, each.info.name));
    EXPECT_EQ(text_of(compressed_infos(algorithm, each.info)), each.expected);
    // What is written is of those shapes and dtypes, in that order.
    const Tensor held = Tensor::zeros(each.info.shape, each.info.dtype, MemoryTag::kData);
    std::vector<TensorInfo> written = compressed_infos(algorithm, each.info);
    const std::vector<Tensor> tensors = compressed_tensors(algorithm, each.info, held);
    ASSERT_EQ(tensors.size(), written.size());
    for (size_t i = 0; i < written.size(); ++i) {
      written[i].shape = tensors[i].shape();
      written[i].dtype = tensors[i].dtype();
    }
    EXPECT_EQ(text_of(written), each.expected);
  }
}

TEST(CompressedParts, FormatsThatReadersKnow) {
  for (const auto& [name, format] :
       std::vector<std::pair<std::string_view, std::string_view>>{{"FP8", "float-quantized"},
                                                                  {"fp8_pb_wo", "float-quantized"},
                                                                  {"W8A8", "int-quantized"},
                                                                  {"W8A16", "pack-quantized"},
                                                                  {"W4A16_NVFP4", "nvfp4-pack-quantized"},
                                                                  {"MXFP8", "mxfp8-quantized"},
                                                                  {"mxfp4", "mxfp4-pack-quantized"},
                                                                  {"NVFP4_AWQ", ""},
                                                                  {"W4A8_AWQ", ""},
                                                                  {"W4A8_MXFP4_FP8", ""}})
    EXPECT_EQ(compressed_format(algorithm_named(name)), format) << name;
}

// Integers of 4 bits in pairs of rows: row 0 is -8 … 7, row 1 all 3.
TEST(CompressedParts, PairsOfRowsBecomeWordsWithTheMiddleAdded) {
  std::vector<uint8_t> bytes;
  for (int column = 0; column < 16; ++column) bytes.push_back(static_cast<uint8_t>(3 << 4 | (column ^ 8)));
  const std::vector<Tensor> words =
      compressed_tensors(algorithm_named("W4A16_AWQ"), {"m.x.weight", {1, 16}, DType::kU8},
                         Tensor::from(bytes).reshape({1, 16}));
  ASSERT_EQ(words.size(), 2u);
  const auto packed = words[0].values<int32_t>();
  EXPECT_EQ(static_cast<uint32_t>(packed[0]), 0x76543210u);
  EXPECT_EQ(static_cast<uint32_t>(packed[1]), 0xFEDCBA98u);
  EXPECT_EQ(static_cast<uint32_t>(packed[2]), 0xBBBBBBBBu);
  EXPECT_EQ(words[1].values<int64_t>()[0], 2);
  EXPECT_EQ(words[1].values<int64_t>()[1], 16);
}

// Of rows that do not fill a word, the rest is 0.
TEST(CompressedParts, ZeroPointsArePackedDownTheRows) {
  const std::vector<int8_t> zeros{-8, 1, 7, 2, 0, 3};  // [3, 2]
  const std::vector<Tensor> words =
      compressed_tensors(algorithm_named("W4A16_ASYM"), {"m.x.weight_zero_point", {3, 2}, DType::kI8},
                         Tensor::from<int8_t>(zeros, {3, 2}));
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0].shape(), (Shape{1, 2}));
  EXPECT_EQ(words[0].values<int32_t>()[0], 0x8F0);
  EXPECT_EQ(words[0].values<int32_t>()[1], 0xBA9);
}

TEST(CompressedParts, ScalesOfTheWholeAreReciprocals) {
  const ModeloptAlgorithm& nvfp4 = algorithm_named("NVFP4");
  const Tensor scale = Tensor::from<float>(std::vector<float>{0.25f}, {1}).reshape({});
  for (const char* name : {"m.x.weight_scale_2", "m.x.input_scale"})
    EXPECT_EQ(compressed_tensors(nvfp4, {name, {}, DType::kF32}, scale).at(0).values<float>()[0], 4.f)
        << name;
  const Tensor plain =
      compressed_tensors(algorithm_named("FP8"), {"m.x.input_scale", {}, DType::kF32}, scale).at(0);
  EXPECT_EQ(plain.values<float>()[0], 0.25f);
}

TEST(CompressedParts, WhatHasNoPlaceIsRefused) {
  const TensorInfo before{"m.x.pre_quant_scale", {32}, DType::kF32};
  const ModeloptAlgorithm& algorithm = algorithm_named("W4A16_AWQ");
  const std::string said =
      "[m.x.pre_quant_scale] has no place in compressed-tensors' folders: export it in the form of modelopt";
  EXPECT_EQ(error_of([&] { compressed_infos(algorithm, before); }), said);
  EXPECT_EQ(error_of([&] { compressed_tensors(algorithm, before, Tensor::zeros({32}, DType::kF32)); }), said);
}

}  // namespace
}  // namespace temper::foreign
