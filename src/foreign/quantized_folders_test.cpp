// Folders of bitsandbytes, GPTQ and AWQ are read as the numbers that these libraries make of them.
#include <cmath>

#include "checkpoints/quantized_test_support.h"
#include "foreign/forms.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;
using checkpoints::zeros;

Json cases() {
  return Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/folders.json");
}

Tensor text(const std::string& letters) {
  return Tensor::from(std::vector<uint8_t>(letters.begin(), letters.end()));
}

Tensor words(const std::vector<uint32_t>& all, const Shape& shape) {
  return Tensor::from(std::vector<int32_t>(all.begin(), all.end())).reshape(shape);
}

class Folders : public checkpoints::Quantized {
 protected:
  // A recorded matrix; `left_out` of its tensors is missing.
  void use(const std::string& name, const std::string& left_out = "") {
    const Json all = cases();
    const Json& golden = all.at(name);
    shape(golden.at("shape").as_array()[0].as_int(), golden.at("shape").as_array()[1].as_int());
    tensors_.resize(0);
    for (const auto& [part, tensor] : golden.at("tensors").as_object())
      if (part != left_out) add("m.x." + part, checkpoints::recorded(tensor));
    config(golden.at("config").dump());
  }
  void shape(int64_t rows, int64_t columns) {
    table_ = {};
    add_matrix(rows, columns);
  }
  void replace(const std::string& name, const Tensor& tensor) {
    std::erase_if(tensors_, [&](const auto& each) { return each.first == name; });
    add(name, tensor);
  }
  std::string error_without(const std::string& name, const std::string& part) {
    use(name, part);
    return load_error();
  }
};

TEST_F(Folders, WhatTheLibrariesHoldIsReadAsTheyReadIt) {
  const Json all = cases();
  EXPECT_EQ(all.as_object().size(), 11u);
  for (const auto& [name, golden] : all.as_object()) {
    SCOPED_TRACE(name);
    use(name);
    const Tensor values = checkpoints::recorded(golden.at("values"));
    EXPECT_EQ(load(), Values(values.values<float>().begin(), values.values<float>().end()));
  }
}

TEST_F(Folders, RanksReadTheRowsThatTheyHold) {
  const Json all = cases();
  for (const auto& [name, golden] : all.as_object()) {
    SCOPED_TRACE(name);
    use(name);
    const Values whole = load();
    const WeightSpec& spec = *table_.find("x");
    const auto folder = ModelFolder::open(folder_.path());
    const Tensor some = folder.form()->rows(folder, {"m.x.weight", spec.shape[0], spec.shape[1]}, 5, 9);
    EXPECT_EQ(Values(some.values<float>().begin(), some.values<float>().end()),
              Values(whole.begin() + 5 * spec.shape[1], whole.begin() + 14 * spec.shape[1]));
  }
}

// Magnitudes in blocks of their own size, and an odd number of elements.
TEST_F(Folders, BitsandbytesBlocksOfAnySize) {
  shape(3, 5);
  std::vector<float> numbers, of_scales;
  for (int i = 0; i < 16; ++i) numbers.push_back(0.11f * static_cast<float>(i - 7));
  for (int i = 0; i < 256; ++i) of_scales.push_back(0.007f * static_cast<float>(i - 100));
  const std::vector<uint8_t> codes{0x1F, 0x2E, 0x3D, 0x4C, 0x5B, 0x6A, 0x79, 0x80}, scales{3, 250, 100, 77};
  const std::vector<float> nested{0.31f, 0.17f};
  add("m.x.weight", Tensor::from(codes).reshape({8, 1}));
  add("m.x.weight.quant_map", Tensor::from(numbers));
  add("m.x.weight.absmax", Tensor::from(scales));
  add("m.x.weight.nested_quant_map", Tensor::from(of_scales));
  add("m.x.weight.nested_absmax", Tensor::from(nested));
  add("m.x.weight.quant_state.bitsandbytes__fp4",
      text(R"({"quant_type": "fp4", "blocksize": 4, "shape": [3, 5], "nested_blocksize": 2,)"
           R"( "nested_offset": 0.0213})"));
  config(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
  Values want;
  for (size_t i = 0; i < 15; ++i) {
    const float product = of_scales[scales[i / 4]] * nested[i / 8], scale = product + 0.0213f;
    want.push_back(numbers[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15] * scale);
  }
  EXPECT_EQ(load(), want);
}

TEST_F(Folders, WhatBitsandbytesLacksIsOneError) {
  const std::string name = "bitsandbytes nf4 with double quantization";
  const std::string state = "m.x.weight.quant_state.bitsandbytes__nf4";
  const auto is_missing = [](const std::string& part) {
    return fmt::format("'m.x.{}' is missing, but the other parts of its matrix exist", part);
  };
  for (const char* part : {"weight.absmax", "weight.quant_map", "weight.nested_absmax",
                           "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4", "weight"})
    expect_has(error_without(name, part), is_missing(part));
  expect_has(error_without("bitsandbytes int8", "SCB"), is_missing("SCB"));

  use(name);
  replace("m.x.weight.absmax", Tensor::zeros({14}, DType::kU8, MemoryTag::kData));
  expect_has(load_error(), "'m.x.weight.absmax' is U8 [14], expected U8 [15]");
  use(name);
  replace("m.x.weight", Tensor::zeros({479, 1}, DType::kU8, MemoryTag::kData));
  expect_has(load_error(), "'m.x.weight' is U8 [479, 1], expected U8 [480, 1]");
  use(name);
  shape(40, 24);
  expect_has(load_error(), "'m.x.weight' is of a matrix [24, 40], expected [40, 24]");
  for (const auto& [json, said] : std::vector<std::pair<std::string, std::string>>{
           {"{", "JSON"},
           {R"({"quant_type": "nf4", "shape": [24, 40]})", "blocksize"},
           {R"({"quant_type": "nf4", "blocksize": 0, "shape": [24, 40]})",
            "'blocksize' is 0, expected a size"},
           {R"({"quant_type": "nf4", "blocksize": 64, "shape": [960]})", "expected that of a matrix"},
           {R"({"quant_type": "nf4", "blocksize": 64, "shape": [24, 40], "nested_blocksize": 256})",
            "nested_offset"}}) {
    use(name);
    replace(state, text(json));
    const std::string error = load_error();
    expect_has(error, "of another shape or dtype: '" + state + "': ");
    expect_has(error, said);
  }
  use("bitsandbytes int8");
  replace("m.x.weight_format", Tensor::from(std::vector<uint8_t>{2}).reshape({}));
  expect_has(load_error(), "'m.x.weight_format' is not 0");
}

// GPTQModel takes one from each by one subtraction from the word.
TEST_F(Folders, ZerosOfGptqBorrowFromTheNextInTheirWord) {
  shape(32, 8);
  std::vector<uint32_t> codes(32), zeros(4);
  std::vector<float> scales(32, 0.5f);
  for (uint32_t i = 0; i < 32; ++i) codes[i] = (i + 1) * 2654435761u;
  for (uint32_t i = 0; i < 4; ++i) zeros[i] = 0x80F0107Fu + i * 0x1000u;  // some are 0
  const auto value = [&](size_t row, size_t column) {
    return (static_cast<float>(codes[row] >> (4 * column) & 15) -
            static_cast<float>(zeros[row / 8] >> (row % 8 * 4) & 15)) *
           0.5f;
  };
  Values want;
  for (size_t row = 0; row < 32; ++row)
    for (size_t column = 0; column < 8; ++column) want.push_back(value(row, column));
  add("m.x.qweight", words(codes, {1, 32}));
  add("m.x.scales", Tensor::from(scales).to(DType::kF16).reshape({1, 32}));
  add("m.x.qzeros", words(zeros, {1, 4}));
  const std::string start = R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": )";
  config(start + R"("gptq_v2"})");
  EXPECT_EQ(load(), want);
  for (uint32_t& word : zeros) word -= 0x11111111u;
  replace("m.x.qzeros", words(zeros, {1, 4}));
  config(start + R"("gptq"})");
  EXPECT_EQ(load(), want);
  // A file of that name says the same of older folders.
  write_file(folder_ / "config.json", "{}");
  write_file(folder_ / "quantize_config.json", R"({"bits": 4, "group_size": -1, "sym": false})");
  EXPECT_EQ(loaded(), want);

  // A bias of zeros that the model does not have is a part of the matrix; another one is unknown.
  add("m.x.bias", Tensor::zeros({32}, DType::kF16, MemoryTag::kData));
  EXPECT_EQ(load(), want);
  replace("m.x.bias", Tensor::from(scales).to(DType::kF16));
  expect_has(load_error(), "1 unknown: 'm.x.bias'");
}

TEST_F(Folders, GptqWithoutAnOrderHasNeighboursInGroupsOfWhichTheLastMayBeSmaller) {
  shape(32, 40);
  std::vector<uint32_t> codes(5 * 32), zeros(3 * 4, 0x77777777u);
  std::vector<float> scales(3 * 32);
  for (uint32_t i = 0; i < codes.size(); ++i) codes[i] = (i + 1) * 2654435761u;
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25f * static_cast<float>(1 + i % 5);
  add("m.x.qweight", words(codes, {5, 32}));
  add("m.x.scales", Tensor::from(scales).reshape({3, 32}));
  add("m.x.qzeros", words(zeros, {3, 4}));
  config(R"({"quant_method": "gptq", "bits": 4, "group_size": 16})");
  Values want;
  for (size_t row = 0; row < 32; ++row)
    for (size_t column = 0; column < 40; ++column)
      want.push_back((static_cast<float>(codes[column / 8 * 32 + row] >> (column % 8 * 4) & 15) - 8) *
                     scales[column / 16 * 32 + row]);
  EXPECT_EQ(load(), want);
  // Other widths than the configuration's only where it says that there are some.
  config(R"({"quant_method": "gptq", "bits": 8, "group_size": 16})");
  expect_has(load_error(), "'m.x.qweight' is I32 [5, 32], expected I32 [10, 32]");
  config(R"({"quant_method": "gptq", "bits": 8, "group_size": 16, "dynamic": {"+:x": {"bits": 4}}})");
  EXPECT_EQ(load(), want);
}

TEST_F(Folders, WhatGptqAndAwqLackIsOneError) {
  const std::string ordered = "gptq 4 bits, in the order of activations";
  for (const auto& [name, part] : std::vector<std::pair<std::string, std::string>>{{ordered, "qweight"},
                                                                                   {ordered, "qzeros"},
                                                                                   {ordered, "scales"},
                                                                                   {"awq", "qweight"},
                                                                                   {"awq", "qzeros"},
                                                                                   {"awq", "scales"}})
    expect_has(error_without(name, part),
               fmt::format("'m.x.{}' is missing, but the other parts of its matrix exist", part));
  use(ordered);
  std::vector<int32_t> groups(32, 1);
  groups[7] = 2;
  replace("m.x.g_idx", Tensor::from(groups));
  expect_has(load_error(), "'m.x.g_idx' has 2 for column 7, expected groups from 0 to 1");
  groups[7] = -1;
  replace("m.x.g_idx", Tensor::from(groups));
  expect_has(load_error(), "'m.x.g_idx' has -1 for column 7, expected groups from 0 to 1");
  replace("m.x.g_idx", Tensor::from(std::vector<int32_t>(31)));
  expect_has(load_error(), "'m.x.g_idx' is I32 [31], expected I32 [32]");
  use(ordered);
  replace("m.x.qzeros", words({1, 2, 3, 4}, {1, 4}));
  expect_has(load_error(), "'m.x.qzeros' is I32 [1, 4], expected I32 [2, 4]");
  use("gptq 3 bits");
  shape(32, 65);
  expect_has(load_error(), "'m.x.weight' is [32, 65], which codes of 3 bits do not pack in words of 32");
  use("awq");
  replace("m.x.qzeros", words({1, 2, 3, 4}, {1, 4}));
  expect_has(load_error(), "'m.x.qzeros' is I32 [1, 4], expected I32 [2, 4]");
  shape(31, 32);
  expect_has(load_error(), "'m.x.weight' is [31, 32], expected rows in eights and columns in groups of 16");
}

TEST_F(Folders, UnreadableConfigurations) {
  use("awq");
  for (const auto& [json, said] : std::vector<std::pair<std::string, std::string>>{
           {R"({"quant_method": "gptq", "group_size": 16})", "bits is missing, expected one of [2, 3, 4, 8]"},
           {R"({"quant_method": "gptq", "bits": 5, "group_size": 16})",
            "bits is 5, expected one of [2, 3, 4, 8]"},
           {R"({"quant_method": "gptq", "bits": 4})",
            "group_size is missing, expected the columns of a group"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "group_size is 0, expected"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": "marlin"})",
            "checkpoint_format is \"marlin\", expected one of [gptq, gptq_v2]"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "is_marlin_format": true})",
            "checkpoint_format is \"marlin\", expected one of [gptq, gptq_v2]"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "pack_dtype": "int8"})",
            "pack_dtype is \"int8\", expected \"int32\""},
           {R"({"quant_method": "awq", "bits": 3, "group_size": 16})", "bits is 3, expected one of [4]"},
           {R"({"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemv_fast"})",
            "version is \"gemv_fast\", whose codes lie otherwise, expected \"gemm\""},
           {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "int4"})",
            "bnb_4bit_quant_type is \"int4\", expected one of [nf4, fp4]"}}) {
    config(json);
    const std::string error = load_error();
    expect_has(error, "config.json] quantization_config: ");
    expect_has(error, said);
  }
}

}  // namespace
}  // namespace temper::foreign
