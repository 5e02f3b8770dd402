// Folders whose files have codes and scales are read as the numbers that these mean.
#include "checkpoints/quantized_form.h"

#include <cmath>

#include "checkpoints/quantized_test_support.h"

namespace temper::checkpoints {
namespace {

// Number i of a made-up sequence of bytes.
uint8_t byte_of(int64_t i) { return static_cast<uint8_t>((i * 2654435761u) >> 13); }
// A scale that no power of two is.
float scale_of(int64_t i) { return 0.013f * static_cast<float>(1 + i % 7); }

Tensor bytes(const Shape& shape, DType dtype, bool nan_free = false) {
  const Tensor all = Tensor::zeros(shape, DType::kU8, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) {
    const uint8_t byte = byte_of(i);
    all.data<uint8_t>()[i] = nan_free && (byte & 0x7F) == 0x7F ? 0x31 : byte;
  }
  const auto owner = std::make_shared<Tensor>(all);
  return Tensor::borrow(owner->raw(), shape, dtype, owner);
}

Tensor scales(const Shape& shape) {
  const Tensor all = Tensor::zeros(shape, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) all.data<float>()[i] = scale_of(i);
  return all;
}

Tensor words(const Shape& shape) {
  const Tensor all = Tensor::zeros(shape, DType::kI32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i)
    all.data<int32_t>()[i] = static_cast<int32_t>(static_cast<uint32_t>(i + 3) * 2654435761u);
  return all;
}

// The numbers of OCP's formats, written down from the standard.
double e2m1(int code) {
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8 ? -1 : 1) * kNumbers[code & 7];
}
double e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 128 ? -magnitude : magnitude;
}
double signed_of(int code, int bits) { return code >= 1 << (bits - 1) ? code - (1 << bits) : code; }

// code(row, column) · scale(row, column), rounded as files' readers do: once for the scale, once for the
// product.
Values expected(int64_t rows, int64_t columns, const std::function<double(int64_t, int64_t)>& code,
                const std::function<float(int64_t, int64_t)>& scale) {
  Values values;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      values.push_back(static_cast<float>(code(r, c) * static_cast<double>(scale(r, c))));
  return values;
}

TEST_F(Quantized, ModeloptFp8WithOneScaleOneForARowAndOneForATile) {
  add_matrix(6, 256);
  const Tensor codes = bytes({6, 256}, DType::kF8E4M3, true);
  const auto code = [&](int64_t r, int64_t c) {
    return e4m3(static_cast<const uint8_t*>(codes.raw())[r * 256 + c]);
  };
  add("m.x.weight", codes);
  add("m.x.weight_scale", Tensor::from<float>(Values{0.37f}, {1}).reshape({}));
  add("m.x.input_scale", Tensor::from<float>(Values{2.5f}, {1}).reshape({}));
  algorithm("FP8");
  EXPECT_EQ(load(), expected(6, 256, code, [](int64_t, int64_t) { return 0.37f; }));

  tensors_.resize(0);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({6}));
  algorithm("FP8_PER_CHANNEL_PER_TOKEN");
  EXPECT_EQ(load(), expected(6, 256, code, [](int64_t r, int64_t) { return scale_of(r); }));

  tensors_.resize(0);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({1, 1, 2, 1}));
  algorithm("fp8_pb_wo");
  EXPECT_EQ(load(), expected(6, 256, code, [](int64_t, int64_t c) { return scale_of(c / 128); }));
}

TEST_F(Quantized, ModeloptIntegers) {
  add_matrix(4, 32);
  const Tensor codes = bytes({4, 32}, DType::kI8);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({4}));
  add("m.x.pre_quant_scale", scales({32}));
  algorithm("W8A8_SQ_PER_CHANNEL");
  // Inputs are multiplied by pre_quant_scale: so are the columns.
  Values want = expected(
      4, 32,
      [&](int64_t r, int64_t c) {
        return signed_of(static_cast<const uint8_t*>(codes.raw())[r * 32 + c], 8);
      },
      [](int64_t r, int64_t) { return scale_of(r); });
  for (size_t i = 0; i < want.size(); ++i) want[i] *= scale_of(static_cast<int64_t>(i % 32));
  EXPECT_EQ(load(), want);

  tensors_.resize(0);
  const Tensor packed = bytes({2, 32}, DType::kU8);
  add("m.x.weight", packed);
  add("m.x.weight_scale", scales({4, 2}));
  algorithm("W4A16_AWQ", R"(, "group_size": 16)");
  EXPECT_EQ(load(), expected(
                        4, 32,
                        [&](int64_t r, int64_t c) {
                          return signed_of(packed.data<uint8_t>()[r / 2 * 32 + c] >> (r % 2 * 4) & 15, 4);
                        },
                        [](int64_t r, int64_t c) { return scale_of(r * 2 + c / 16); }));
}

// The element of E4M3 that is nearest; the even one where two are.
double nearest_e4m3(double x) {
  int best = 0;
  for (int code = 0; code < 0x7F; ++code) {
    const double further = std::fabs(std::fabs(x) - e4m3(code)) - std::fabs(std::fabs(x) - e4m3(best));
    if (further < 0 || (further == 0 && code % 2 == 0)) best = code;
  }
  return std::copysign(e4m3(best), x);
}

TEST_F(Quantized, ModeloptIntegersThatAreRoundedAgainToFp8) {
  add_matrix(4, 32);
  const Tensor packed = bytes({2, 32}, DType::kU8);
  const float second = 0.0007f;  // of which the largest numbers are beyond 448 times
  add("m.x.weight", packed);
  add("m.x.weight_scale", scales({4, 2}));
  add("m.x.weight_scale_2", Tensor::from<float>(Values{second}, {1}).reshape({}));
  add("m.x.input_scale", Tensor::from<float>(Values{2.5f}, {1}).reshape({}));
  add("m.x.pre_quant_scale", scales({32}));
  algorithm("W4A8_AWQ", R"(, "group_size": 16)");
  Values want = expected(
      4, 32,
      [&](int64_t r, int64_t c) {
        return signed_of(packed.data<uint8_t>()[r / 2 * 32 + c] >> (r % 2 * 4) & 15, 4);
      },
      [](int64_t r, int64_t c) { return scale_of(r * 2 + c / 16); });
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] = static_cast<float>(nearest_e4m3(want[i] / second) * static_cast<double>(second));
    want[i] *= scale_of(static_cast<int64_t>(i % 32));
  }
  EXPECT_EQ(load(), want);

  std::erase_if(tensors_, [](const auto& each) { return each.first == "m.x.weight_scale_2"; });
  expect_has(load_error(), "'m.x.weight_scale_2' is missing, but the other parts of its matrix exist");
  algorithm("W4A8_AWQ");
  expect_has(load_error(), "'m.x.weight' is in blocks of 128, but has 32 columns");
}

// nvidia-modelopt divides integers by the reciprocal of a file's scale, and multiplies by 448 / amax.
TEST_F(Quantized, WhatModeloptRoundsTwiceIsReadAsItComputesIt) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/packing.json");
  const Json& golden = cases.at("w4a8_awq");
  const Tensor values = recorded(golden.at("values"));
  add_matrix(values.dim(0), values.dim(1));
  for (const auto& [part, tensor] : golden.at("tensors").as_object()) add("m.x." + part, recorded(tensor));
  algorithm("W4A8_AWQ", R"(, "group_size": 128)");
  const Values read = load();
  ASSERT_EQ(static_cast<int64_t>(read.size()), values.numel());
  for (size_t i = 0; i < read.size(); ++i) {
    const float want = values.values<float>()[i];
    ASSERT_NEAR(read[i], want, 4 * 0x1p-24 * std::fabs(want)) << i;
  }
}

TEST_F(Quantized, ModeloptFourBitFloatsAndPowersOfTwo) {
  add_matrix(4, 64);
  const Tensor packed = bytes({4, 32}, DType::kU8);
  const auto code = [&](int64_t r, int64_t c) {
    return e2m1(packed.data<uint8_t>()[r * 32 + c / 2] >> (c % 2 * 4) & 15);
  };
  const Tensor of_blocks = bytes({4, 4}, DType::kF8E4M3, true);
  add("m.x.weight", packed);
  add("m.x.weight_scale", of_blocks);
  add("m.x.weight_scale_2", Tensor::from<float>(Values{0.0173f}, {1}).reshape({}));
  algorithm("NVFP4", R"(, "group_size": 16)");
  EXPECT_EQ(load(), expected(4, 64, code, [&](int64_t r, int64_t c) {
              return static_cast<float>(e4m3(static_cast<const uint8_t*>(of_blocks.raw())[r * 4 + c / 16])) *
                     0.0173f;
            }));

  const Tensor powers = Tensor::zeros({4, 2}, DType::kU8, MemoryTag::kData);
  for (int64_t i = 0; i < 8; ++i) powers.data<uint8_t>()[i] = static_cast<uint8_t>(120 + i);
  const auto power = [](int64_t r, int64_t c) {
    return std::ldexp(1.f, static_cast<int>(120 + r * 2 + c / 32 - 127));
  };
  for (const char* name : {"mxfp4", "W4A8_MXFP4_FP8"}) {
    tensors_.resize(0);
    add("m.x.weight", packed);
    add("m.x.weight_scale", powers);
    algorithm(name);
    EXPECT_EQ(load(), expected(4, 64, code, power));
  }
  tensors_.resize(0);
  const Tensor wide = bytes({4, 64}, DType::kF8E4M3, true);
  add("m.x.weight", wide);
  add("m.x.weight_scale", powers);
  algorithm("MXFP8");
  EXPECT_EQ(load(), expected(
                        4, 64,
                        [&](int64_t r, int64_t c) {
                          return e4m3(static_cast<const uint8_t*>(wide.raw())[r * 64 + c]);
                        },
                        power));
}

TEST_F(Quantized, HuggingFaceFp8HasTilesOfWhichTheLastMayBeSmaller) {
  add_matrix(150, 140);
  const Tensor codes = bytes({150, 140}, DType::kF8E4M3, true);
  add("m.x.weight", codes);
  add("m.x.weight_scale_inv", scales({2, 2}));
  config(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})");
  EXPECT_EQ(load(), expected(
                        150, 140,
                        [&](int64_t r, int64_t c) {
                          return e4m3(static_cast<const uint8_t*>(codes.raw())[r * 140 + c]);
                        },
                        [](int64_t r, int64_t c) { return scale_of(r / 128 * 2 + c / 128); }));
}

TEST_F(Quantized, CompressedTensorsPackIntegersInWords) {
  add_matrix(6, 36);
  const Tensor packed = words({6, 5}), zeros = words({1, 3});
  const auto nibble = [](const Tensor& held, int64_t word, int64_t place) {
    return static_cast<int>(static_cast<uint32_t>(held.data<int32_t>()[word]) >> (place * 4) & 15) - 8;
  };
  add("m.x.weight_packed", packed);
  add("m.x.weight_scale", scales({6, 3}));
  add("m.x.weight_shape", Tensor::from(std::vector<int64_t>{6, 36}));
  config(R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})");
  const auto scale = [](int64_t r, int64_t c) { return scale_of(r * 3 + c / 12); };
  EXPECT_EQ(load(),
            expected(
                6, 36, [&](int64_t r, int64_t c) { return nibble(packed, r * 5 + c / 8, c % 8); }, scale));

  add("m.x.weight_zero_point", zeros);
  EXPECT_EQ(load(), expected(
                        6, 36,
                        [&](int64_t r, int64_t c) {
                          return nibble(packed, r * 5 + c / 8, c % 8) - nibble(zeros, c / 12, r);
                        },
                        scale));

  // The group of each column, as models that were ordered by activations have it.
  std::vector<int32_t> groups;
  for (int32_t c = 0; c < 36; ++c) groups.push_back(c % 3);
  tensors_.erase(tensors_.end() - 1);
  add("m.x.weight_g_idx", Tensor::from(groups));
  std::erase_if(tensors_, [](const auto& each) { return each.first == "m.x.weight_zero_point"; });
  EXPECT_EQ(load(), expected(
                        6, 36, [&](int64_t r, int64_t c) { return nibble(packed, r * 5 + c / 8, c % 8); },
                        [](int64_t r, int64_t c) { return scale_of(r * 3 + c % 3); }));
}

TEST_F(Quantized, CompressedTensorsHaveBytesWithOneScaleForARowOrATile) {
  add_matrix(4, 32);
  const Tensor codes = bytes({4, 32}, DType::kF8E4M3, true);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({4, 1}).to(DType::kBF16));
  config(R"({"quant_method": "compressed-tensors", "format": "float-quantized"})");
  const auto code = [&](int64_t r, int64_t c) {
    return e4m3(static_cast<const uint8_t*>(codes.raw())[r * 32 + c]);
  };
  EXPECT_EQ(load(), expected(4, 32, code,
                             [](int64_t r, int64_t) { return static_cast<float>(BFloat16(scale_of(r))); }));
  tensors_.resize(1);
  tensors_[0] = {"m.x.weight", codes};
  add("m.x.weight_scale", scales({2, 4}));
  config(R"({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups":
             {"group_0": {"weights": {"strategy": "block", "block_structure": [2, 8]}}}})");
  EXPECT_EQ(load(), expected(4, 32, code, [](int64_t r, int64_t c) { return scale_of(r / 2 * 4 + c / 8); }));
}

TEST_F(Quantized, WhatCompressedTensorsWritesIsReadAsItReadsIt) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/compressed.json");
  EXPECT_EQ(cases.as_object().size(), 12u);
  add_matrix(12, 32);
  for (const auto& [name, golden] : cases.as_object()) {
    SCOPED_TRACE(name);
    tensors_.resize(0);
    for (const auto& [part, tensor] : golden.at("tensors").as_object()) add("m.x." + part, recorded(tensor));
    config(golden.at("config").dump());
    const Tensor values = recorded(golden.at("values"));
    EXPECT_EQ(load(), Values(values.values<float>().begin(), values.values<float>().end()));
  }
}

TEST_F(Quantized, BlocksOfCompressedTensorsThatLackAPart) {
  const Json cases =
      Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/compressed.json");
  add_matrix(12, 32);
  const auto error_without = [&](const std::string& name, const std::string& part) {
    tensors_.resize(0);
    const Json& golden = cases.at(name);
    for (const auto& [own, tensor] : golden.at("tensors").as_object())
      if (own != part) add("m.x." + own, recorded(tensor));
    config(golden.at("config").dump());
    return load_error();
  };
  for (const auto& [name, part] :
       std::vector<std::pair<std::string, std::string>>{{"nvfp4", "weight_packed"},
                                                        {"nvfp4", "weight_scale"},
                                                        {"nvfp4", "weight_global_scale"},
                                                        {"mxfp4", "weight_scale"},
                                                        {"mxfp8", "weight_scale"}})
    expect_has(error_without(name, part), fmt::format("'m.x.{}' is missing, but the other parts", part));
  table_ = {};
  add_matrix(12, 48);
  expect_has(error_without("mxfp4", ""), "'m.x.weight' is in blocks of 32, but has 48 columns");
}

// The form that older folders of nvidia-modelopt have: config.json says nothing.
TEST_F(Quantized, AFileBesideTheConfigurationNamesTheAlgorithm) {
  add_matrix(2, 16);
  add("m.x.weight", bytes({2, 16}, DType::kI8));
  add("m.x.weight_scale", scales({2}));
  write_file(folder_ / "config.json", "{}");
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "W8A16"}})");
  EXPECT_EQ(load()[1], static_cast<float>(static_cast<int8_t>(byte_of(1))) * scale_of(0));
}

TEST_F(Quantized, RanksReadTheRowsThatTheyHold) {
  add_matrix(8, 16);
  const Tensor codes = bytes({4, 16}, DType::kU8);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({8, 1}));
  algorithm("W4A16_AWQ", R"(, "group_size": 16)");
  const Values whole = load();
  const auto folder = ModelFolder::open(folder_.path());
  // An odd number of rows from an odd one on.
  const QuantizedMatrix matrix{"m.x.weight", 8, 16};
  const Tensor some = folder.form()->rows(folder, matrix, 3, 3);
  EXPECT_EQ(Values(some.values<float>().begin(), some.values<float>().end()),
            Values(whole.begin() + 3 * 16, whole.begin() + 6 * 16));
}

TEST_F(Quantized, WhatIsMissingOrUnlikeIsOneError) {
  add_matrix(4, 32);
  const Tensor codes = bytes({4, 32}, DType::kF8E4M3, true);
  add("m.x.weight", codes);
  algorithm("FP8");
  expect_has(load_error(), "'m.x.weight_scale' is missing, but the other parts of its matrix exist");
  add("m.x.weight_scale", scales({3}));
  expect_has(load_error(), "'m.x.weight_scale' is F32 [3], expected F32 [] or [1]");
  algorithm("W8A16");
  expect_has(load_error(), "'m.x.weight' is F8_E4M3 [4, 32], expected I8 [4, 32]");
  algorithm("W4A16_AWQ");
  expect_has(load_error(), "'m.x.weight' is in blocks of 128, but has 32 columns");
  algorithm("MIXED_PRECISION", R"(, "quantized_layers": {"m.y": {"quant_algo": "FP8"}})");
  expect_has(load_error(), "'m.x.weight' has codes, but quantized_layers does not name it");
  // Names that are no part of a matrix are still unknown.
  tensors_.resize(0);
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({1}));
  add("m.x.svdquant_lora_a", scales({4}));
  algorithm("FP8");
  expect_has(load_error(), "1 unknown: 'm.x.svdquant_lora_a'");
}

TEST_F(Quantized, CodesThatMeanNoNumberAreRefused) {
  add_matrix(2, 16);
  const Tensor codes = bytes({2, 16}, DType::kF8E4M3, true);
  static_cast<uint8_t*>(const_cast<void*>(codes.raw()))[17] = 0xFF;
  add("m.x.weight", codes);
  add("m.x.weight_scale", scales({1}));
  algorithm("FP8");
  expect_has(load_error(), "tensor 'm.x.weight': found nan at [1, 1]");
}

TEST_F(Quantized, UnreadableConfigurations) {
  add_matrix(2, 16);
  add("m.x.weight", scales({2, 16}));
  config(R"({"quant_method": "hqq"})");
  expect_has(load_error(),
             "config.json] quantization_config: quant_method is \"hqq\", expected one of [modelopt, ");
  config(R"({"bits": 4})");
  expect_has(load_error(), "quant_method is missing, expected one of [modelopt, ");
  algorithm("NVFP4_SVD");
  expect_has(load_error(), "quant_algo is \"NVFP4_SVD\", expected one of [FP8, ");
  algorithm("MIXED_PRECISION");
  expect_has(load_error(), "quantized_layers, the quant_algo of each, is missing");
  algorithm("NVFP4", R"(, "group_size": 0)");
  expect_has(load_error(), "group_size is 0, expected the columns of a block");
  config(R"({"quant_method": "compressed-tensors", "format": "marlin-24"})");
  expect_has(load_error(), "format is \"marlin-24\", expected one of [float-quantized, ");
  config(R"({"quant_method": "fp8", "weight_block_size": [128]})");
  expect_has(load_error(), "weight_block_size is [128], expected [rows, columns] of a tile or null");
}

}  // namespace
}  // namespace temper::checkpoints
