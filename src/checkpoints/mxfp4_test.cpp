#include "checkpoints/mxfp4.h"

#include <cmath>

#include "checkpoints/quantized_test_support.h"

namespace temper::checkpoints {
namespace {

class Mxfp4 : public testing::Test {
 protected:
  // Two experts of two rows each, of 64 columns.
  Mxfp4() { use(false); }
  void use(bool alternating, int64_t columns = 64) {
    table_ = {};
    table_.add({.name = "x",
                .shape = {4, columns},
                .axes = {"experts*expert_width", "hidden"},
                .sources = {{"m.up", 4}},
                .experts_in_files = 2,
                .alternating = alternating,
                .mxfp4 = true});
  }
  ModelFolder folder_with(const Parts& tensors) {
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    SafetensorsWriter writer(folder_ / "model.safetensors", infos);
    for (const auto& [name, tensor] : tensors) writer.add(tensor);
    writer.close();
    return ModelFolder::open(folder_.path());
  }
  std::string refusal(const Parts& tensors) {
    const ModelFolder folder = folder_with(tensors);
    return error_of([&] { check_weights(folder, table_); });
  }
  Values loaded(const Parts& tensors) {
    const ModelFolder folder = folder_with(tensors);
    const Tensor to = Tensor::zeros({4, 64}, DType::kF32);
    load_weights(folder, table_, [&](const WeightSpec&) { return to; });
    return {to.values<float>().begin(), to.values<float>().end()};
  }
  // Row r of all has code r + c % 2 and the powers 2^r of its first, 2^-r of its second block.
  static Part blocks() {
    const Tensor codes = zeros({2, 2, 2, 16}, DType::kU8);
    for (int64_t i = 0; i < codes.numel(); ++i) {
      const auto row = static_cast<uint8_t>(i / 32);
      codes.data<uint8_t>()[i] = static_cast<uint8_t>(row | (row + 1) << 4);
    }
    return {"m.up_blocks", codes};
  }
  static Part scales() {
    const Tensor powers = zeros({2, 2, 2}, DType::kU8);
    for (int i = 0; i < 8; ++i)
      powers.data<uint8_t>()[i] = static_cast<uint8_t>(127 + (i % 2 == 0 ? i / 2 : -(i / 2)));
    return {"m.up_scales", powers};
  }
  TemporaryDirectory folder_;
  WeightTable table_;
};

TEST_F(Mxfp4, CodesTimesPowersOfTwo) {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2};
  Values want;
  for (int row = 0; row < 4; ++row)
    for (int c = 0; c < 64; ++c) want.push_back(std::ldexp(kNumbers[row + c % 2], c < 32 ? row : -row));
  EXPECT_EQ(loaded({blocks(), scales()}), want);
  EXPECT_TRUE(holds_mxfp4(folder_with({blocks(), scales()}), table_));
  EXPECT_FALSE(holds_mxfp4(folder_with({{"m.up", zeros({2, 64, 2}, DType::kF32)}}), table_));
}

// In files the rows of an expert's halves take turns; here each half has one row.
TEST_F(Mxfp4, HalvesInTurns) {
  const Values plain = loaded({blocks(), scales()});
  use(true);
  EXPECT_EQ(loaded({blocks(), scales()}), plain);
}

TEST_F(Mxfp4, WhatDoesNotFit) {
  const Part other{"m.up", zeros({2, 64, 2}, DType::kF32)};
  expect_has(refusal({blocks()}), "'m.up_scales' is missing, but its other half exists");
  expect_has(refusal({scales()}), "'m.up_blocks' is missing, but its other half exists");
  expect_has(refusal({other, blocks(), scales()}),
             "1 in two forms; keep one of them: 'm.up' and 'm.up_blocks'");
  expect_has(refusal({{"m.up_blocks", zeros({2, 2, 2, 15}, DType::kU8)}, scales()}),
             "'m.up_blocks' is U8 [2, 2, 2, 15], expected U8 [2, 2, 2, 16]");
  expect_has(refusal({{"m.up_blocks", zeros({2, 2, 2, 16}, DType::kI8)}, scales()}),
             "'m.up_blocks' is I8 [2, 2, 2, 16], expected U8 [2, 2, 2, 16]");
  expect_has(refusal({blocks(), scales(), {"m.down_scales", zeros({1}, DType::kU8)}}),
             "1 unknown: 'm.down_scales'");
  use(false, 48);
  expect_has(refusal({blocks(), scales()}), "'m.up' is in blocks of 32, but has 48 columns");
}

TEST_F(Mxfp4, AScaleThatIsNoNumber) {
  Part broken = scales();
  broken.second.data<uint8_t>()[6] = 255;
  expect_has(error_of([&] { loaded({blocks(), broken}); }), "tensor 'm.up_blocks': found nan at [3, 0]");
}

}  // namespace
}  // namespace temper::checkpoints
