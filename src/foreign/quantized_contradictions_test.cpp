// Folders of nvidia-modelopt of which one file says something else than another.
#include "checkpoints/quantized_test_support.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;

using checkpoints::Quantized;

TEST_F(Quantized, FilesThatNameOtherNumbersAreRefused) {
  add_matrix(2, 16);
  add("m.x.weight", Tensor::zeros({2, 16}, DType::kF32, MemoryTag::kData));
  algorithm("FP8", R"(, "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}})");
  expect_has(load_error(),
             "quant_algo is FP8, whose weights have 8 bits, but group_0 of config_groups has num_bits 4; one "
             "of them is wrong");
  algorithm("NVFP4");
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  expect_has(load_error(), "config.json] quant_algo is \"NVFP4\", but \"FP8\" in ");
  algorithm("fp8");
  EXPECT_EQ(load_error().find("one of them is wrong"), std::string::npos) << load_error();
  remove_all(folder_ / "hf_quant_config.json");
}

// nvidia-modelopt's config.json has no group_size of INT4, and its hf_quant_config.json has.
TEST_F(Quantized, BlocksOfOtherWidthsAreRefused) {
  add_matrix(4, 32);
  add("m.x.weight", Tensor::zeros({2, 32}, DType::kU8, MemoryTag::kData));
  add("m.x.weight_scale", Tensor::zeros({4, 2}, DType::kF32, MemoryTag::kData));
  algorithm("W4A16_AWQ");
  expect_has(load_error(), "'m.x.weight' is in blocks of 128, but has 32 columns");
  const auto write_extra = [&](int64_t size) {
    write_file(folder_ / "hf_quant_config.json",
               fmt::format(R"({{"quantization": {{"quant_algo": "W4A16_AWQ", "group_size": {}}}}})", size));
  };
  write_extra(16);
  EXPECT_EQ(load_error(), "");
  algorithm("W4A16_AWQ", R"(, "group_size": 16)");
  EXPECT_EQ(load_error(), "");
  write_extra(32);
  expect_has(load_error(), "config.json] group_size is 16, but 32 in ");
  remove_all(folder_ / "hf_quant_config.json");
  const auto group = [&](int64_t size) {
    algorithm(
        "W4A16_AWQ",
        fmt::format(
            R"(, "group_size": 16, "config_groups": {{"group_0": {{"weights": {{"group_size": {}}}}}}})",
            size));
  };
  group(16);
  EXPECT_EQ(load_error(), "");
  group(8);
  expect_has(
      load_error(),
      "quant_algo is W4A16_AWQ in blocks of 16, but group_0 of config_groups has group_size 8; one of them "
      "is wrong");
}

TEST_F(Quantized, ScalesThatTheAlgorithmDoesNotHaveAreRefused) {
  add_matrix(4, 32);
  add("m.x.weight", Tensor::zeros({4, 32}, DType::kF8E4M3, MemoryTag::kData));
  add("m.x.weight_scale", Tensor::from<float>(Values{0.5f}, {1}));
  algorithm("FP8");
  EXPECT_EQ(load_error(), "");
  add("m.x.weight_scale_2", Tensor::from<float>(Values{0.5f}, {1}));
  expect_has(load_error(), "'m.x.weight_scale_2' is there, but quant_algo FP8 has no second scale");
}

}  // namespace
}  // namespace temper::foreign
