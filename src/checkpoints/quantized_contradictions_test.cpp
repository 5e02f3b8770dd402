// Folders of nvidia-modelopt of which one file says something else than another.
#include "checkpoints/quantized_test_support.h"

namespace temper::checkpoints {
namespace {

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
}  // namespace temper::checkpoints
