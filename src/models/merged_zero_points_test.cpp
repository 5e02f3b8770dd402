// Adapters that are merged into folders with zero points.
#include "models/merged_quantized_test_support.h"
#include "tests/support/errors.h"

namespace temper::models {
namespace {

// Both ends of the ranges are those of the merged weights.
TEST_F(MergedQuantized, FoldersWithZeroPoints) {
  using quantizers::Sharing;
  const auto asymmetric = [](const char* format, Sharing sharing, int64_t block = 0) {
    return QuantizerKind{format, sharing, block, false, "", false};
  };
  for (const auto& [weights, inputs] :
       {std::pair{asymmetric("int4", Sharing::kBlock, 32), QuantizerKind{}},
        {asymmetric("int4", Sharing::kRow), {}},
        {asymmetric("int8", Sharing::kRow), {}},
        {asymmetric("int8", Sharing::kBlock, 64), {}},
        {asymmetric("int8", Sharing::kRow), asymmetric("int8", Sharing::kTensor)},
        {{"int8", Sharing::kRow}, asymmetric("int8", Sharing::kTensor)}}) {
    SCOPED_TRACE(fmt::format("{} per {}", weights.format, weights.block));
    for (const char* made : {"base", "adapter", "numbers", "codes"}) remove_all(out_ / made);
    const QuantizeOptions quantize{"", {{"layers.*", weights, inputs}}};
    form_ = ExportForm::kCompressedTensors;
    make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj", "k_proj", "v_proj", "down_proj"}}});
    EXPECT_EQ(check_values(quantize, {"attention.qkv.weight", "mlp.down.weight"}), 2);
    const ModelFolder base = open("base"), codes = open("codes");
    EXPECT_EQ(codes.config(), base.config());
    EXPECT_EQ(codes.names().size(), base.names().size());
    int64_t other_zeros = 0;
    for (const std::string& name : base.names()) {
      const checkpoints::TensorEntry *a = base.find(name), *b = codes.find(name);
      ASSERT_NE(b, nullptr) << name;
      EXPECT_EQ(std::pair(a->dtype, a->shape), std::pair(b->dtype, b->shape)) << name;
      const bool same = same_bytes(base.tensor(name), codes.tensor(name));
      if (name.find("o_proj") != std::string::npos || name.find(".input_") != std::string::npos) {
        EXPECT_TRUE(same) << name;
      }
      other_zeros += name.ends_with("weight_zero_point") && !same ? 1 : 0;
    }
    EXPECT_EQ(other_zeros, weights.symmetric ? 0 : 4);
  }
}

// Zero points that are all 0 may belong to symmetric integers, of which readers expect no others.
TEST_F(MergedQuantized, ZeroPointsThatAreAllZeroAreRefused) {
  const QuantizerKind int8{"int8", quantizers::Sharing::kRow, 0, false, "", false};
  const QuantizeOptions quantize{"", {{"layers.*", int8, {}}}};
  form_ = ExportForm::kCompressedTensors;
  make("qwen3", quantize, {.rank = 2, .targets = {.names = {"q_proj"}}});
  const std::string file = out_ / "base/model.safetensors";
  std::vector<checkpoints::TensorInfo> infos;
  std::vector<Tensor> tensors;
  for (const ModelFolder base = open("base"); const std::string& name : base.names()) {
    Tensor tensor = base.tensor(name).clone(MemoryTag::kData);
    if (name.ends_with("q_proj.weight_zero_point"))  // codes of 0 in words
      for (int32_t& word : tensor.values<int32_t>()) word = static_cast<int32_t>(0x80808080u);
    infos.push_back({name, tensor.shape(), tensor.dtype()});
    tensors.push_back(std::move(tensor));
  }
  checkpoints::SafetensorsWriter writer(file, infos);
  for (const Tensor& tensor : tensors) writer.add(tensor);
  writer.close();
  remove_all(out_ / "codes");
  expect_has(
      error_of([&] { merge(MergedForm::kAsBase, "codes"); }),
      "'model.layers.0.self_attn.q_proj.weight' is quantized as compressed-tensors pack-quantized, which is "
      "read, but not written: leave out --quantized");
}

}  // namespace
}  // namespace temper::models
