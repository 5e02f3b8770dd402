// Folders of compressed-tensors whose configuration or tensors do not fit.
#include "checkpoints/quantized_test_support.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;
using checkpoints::zeros;

// What a folder has of the matrix, and what is said of it.
struct Misfit {
  std::string format;
  checkpoints::Parts parts;
  std::string said, more = {};
};

class CompressedRefusals : public checkpoints::Quantized {
 protected:
  // A matrix [8, 16].
  void use(const std::string& format, const checkpoints::Parts& parts, const std::string& more = "") {
    table_ = {};
    add_matrix(8, 16);
    tensors_.resize(0);
    for (const auto& [ending, tensor] : parts) add("m.x." + ending, tensor);
    config(R"({"quant_method": "compressed-tensors", "format": ")" + format + "\"" + more + "}");
  }
  void expect_refused(const std::vector<Misfit>& misfits) {
    for (const Misfit& each : misfits) {
      SCOPED_TRACE(each.said);
      use(each.format, each.parts, each.more);
      expect_has(load_error(), each.said);
    }
  }
};

checkpoints::Part scales_of(const Shape& shape, DType dtype = DType::kF32) {
  return {"weight_scale", zeros(shape, dtype)};
}
checkpoints::Part points_of(const Shape& shape, DType dtype) {
  return {"weight_zero_point", zeros(shape, dtype)};
}

TEST_F(CompressedRefusals, CodesAndScalesThatDoNotFit) {
  const checkpoints::Part bytes{"weight", zeros({8, 16}, DType::kI8)}, scale = scales_of({8, 1});
  const std::string integers = "int-quantized",
                    tiles = R"(, "config_groups": {"g": {"weights": {"block_structure": [4, 8]}}})",
                    not_of_tiles = ", expected F32 or BF16 or F16 [1] or [8, 1] or [2, 2]";
  expect_refused({{integers, {scale}, "'m.x.weight' is missing, but the other parts of its matrix exist"},
                  {integers,
                   {{"weight", zeros({8, 15}, DType::kI8)}, scale},
                   "'m.x.weight' is I8 [8, 15], expected F8_E4M3 or I8 [8, 16]"},
                  {integers,
                   {{"weight", zeros({8, 16}, DType::kF32)}, scale},
                   "'m.x.weight' is F32 [8, 16], expected F8_E4M3 or I8 [8, 16]"},
                  {integers, {bytes}, "'m.x.weight_scale' is missing, but the other parts"},
                  {integers,
                   {bytes, scales_of({8, 1}, DType::kI32)},
                   "'m.x.weight_scale' is I32 [8, 1], expected F32 or BF16 or F16 [1] or [8, 1]"},
                  {integers, {bytes, scales_of({3})}, "'m.x.weight_scale' is F32 [3], expected"},
                  {integers, {bytes, scales_of({8, 0})}, "'m.x.weight_scale' is F32 [8, 0], expected"},
                  {integers, {bytes, scales_of({8, 1, 1})}, "'m.x.weight_scale' is F32 [8, 1, 1], expected"},
                  {integers, {bytes, scales_of({7, 2})}, "'m.x.weight_scale' is F32 [7, 2], expected"},
                  {integers, {bytes, scales_of({8, 5})}, "'m.x.weight_scale' is F32 [8, 5], expected"},
                  {integers, {bytes, scales_of({3, 2})}, "is F32 [3, 2]" + not_of_tiles, tiles},
                  {integers, {bytes, scales_of({2, 3})}, "is F32 [2, 3]" + not_of_tiles, tiles},
                  {integers,
                   {bytes, scale, points_of({8, 2}, DType::kI8)},
                   "'m.x.weight_zero_point' is I8 [8, 2], expected I8 [8, 1] or [8]"},
                  {integers,
                   {bytes, scale, points_of({8, 1}, DType::kI32)},
                   "'m.x.weight_zero_point' is I32 [8, 1], expected I8"}});
}

TEST_F(CompressedRefusals, WordsThatDoNotFit) {
  const checkpoints::Part words{"weight_packed", zeros({8, 2}, DType::kI32)}, groups = scales_of({8, 2});
  const auto order = [](std::vector<int32_t> own) {
    own.resize(16, own.back());
    return checkpoints::Part{"weight_g_idx", Tensor::from(own)};
  };
  const std::string packed = "pack-quantized",
                    no_group = "'m.x.weight_g_idx' has groups that are not from 0 to 1";
  expect_refused({{packed,
                   {{"weight_packed", zeros({8, 3}, DType::kI32)}, groups},
                   "'m.x.weight_packed' is I32 [8, 3], expected I32 [8, 2] or [8, 4]"},
                  {packed,
                   {words, groups, points_of({8, 2}, DType::kI32)},
                   "'m.x.weight_zero_point' is I32 [8, 2], expected I32 [1, 2]"},
                  {packed,
                   {{"weight_packed", zeros({8, 4}, DType::kI32)}, groups, points_of({1, 2}, DType::kI32)},
                   "'m.x.weight_zero_point' is I32 [1, 2], expected I32 [2, 2]"},
                  {packed,
                   {words, groups, {"weight_g_idx", zeros({15}, DType::kI32)}},
                   "'m.x.weight_g_idx' is I32 [15], expected I32 [16]"},
                  {packed, {words, groups, order({0, 2})}, no_group},
                  {packed, {words, groups, order({-1, 0})}, no_group}});
}

TEST_F(CompressedRefusals, FormsOfScalesThatFit) {
  const checkpoints::Part bytes{"weight", zeros({8, 16}, DType::kI8)};
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}, Shape{8}, Shape{8, 1}, Shape{8, 4}}) {
    use("int-quantized", {bytes, {"weight_scale", zeros(shape, DType::kBF16)}});
    EXPECT_EQ(load_error(), "") << to_string(shape);
  }
}

// One for all columns, as if the order were not there.
TEST_F(CompressedRefusals, AnOrderOfMinusOneIsNone) {
  std::vector<int32_t> words;
  for (int i = 0; i < 16; ++i) words.push_back(i * 0x01234567);
  const Tensor scales =
      Tensor::from<float>(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {8, 2});
  use("pack-quantized", {{"weight_packed", Tensor::from(words).reshape({8, 2})}, {"weight_scale", scales}});
  const Values plain = load();
  add("m.x.weight_g_idx", Tensor::from(std::vector<int32_t>(16, -1)));
  EXPECT_EQ(load(), plain);
}

TEST_F(CompressedRefusals, MatricesThatAreNotQuantizedAreReadAsTheyAre) {
  use("int-quantized", {{"weight", Tensor::from<float>(Values(128, 0.25f), {8, 16})}});
  EXPECT_EQ(load(), Values(128, 0.25f));
}

TEST_F(CompressedRefusals, Configurations) {
  table_ = {};
  add_matrix(8, 16);
  add("m.x.weight", zeros({8, 16}, DType::kF32));
  const std::string start = R"({"quant_method": "compressed-tensors")";
  struct Case {
    std::string rest, said;  // "": it is read
  };
  const std::string tile = R"([g] block_structure is )",
                    weights = R"(, "format": "int-quantized", "config_groups": {"g": {"weights": )";
  for (const Case& each : std::vector<Case>{
           {"", "config.json] quantization_config: format is missing, expected one of [float-quantized, "},
           {R"(, "format": 3)", "quantization_config: format is 3, expected one of [float-quantized, "},
           {R"(, "format": "int-quantized", "config_groups": [])", ""},
           {R"(, "format": "int-quantized", "config_groups": {"g": {"format": null}})", ""},
           {R"(, "format": "int-quantized", "config_groups": {"g": {"format": "mxfp8-quantized"}})", ""},
           {R"(, "format": "int-quantized", "config_groups": {"g": {"format": "marlin-24"}})",
            "[g] format is \"marlin-24\", expected one of [float-quantized, "},
           {R"(, "format": "int-quantized", "config_groups": {"g": {"format": 3}})",
            "[g] format is 3, expected"},
           {R"(, "format": "int-quantized", "config_groups": {"g": 3})", ""},
           {weights + "3}}", ""},
           {weights + R"({"block_structure": null}}})", ""},
           {weights + R"({"block_structure": "8x8"}}})",
            tile + R"("8x8", expected [rows, columns] of a tile)"},
           {weights + R"({"block_structure": [8]}}})", tile + "[8], expected"},
           {weights + R"({"block_structure": ["8", 8]}}})", tile + R"(["8", 8], expected)"},
           {weights + R"({"block_structure": [8, "8"]}}})", tile + R"([8, "8"], expected)"},
           {weights + R"({"block_structure": [0, 8]}}})", tile + "[0, 8], expected"},
           {weights + R"({"block_structure": [8, -1]}}})", tile + "[8, -1], expected"}}) {
    SCOPED_TRACE(each.rest);
    config(start + each.rest + "}");
    if (each.said.empty())
      EXPECT_EQ(load_error(), "");
    else
      expect_has(load_error(), each.said);
  }
}

TEST_F(CompressedRefusals, BlocksByOneOfTheirParts) {
  struct Case {
    checkpoints::Parts parts;
    std::string said;
  };
  const Tensor nibbles = zeros({8, 8}, DType::kU8);
  for (const Case& each : std::vector<Case>{
           // Packed bytes: nvfp4 by either of its scales, mxfp4 otherwise.
           {{{"weight_packed", nibbles}, {"weight_global_scale", zeros({1}, DType::kF32)}},
            "'m.x.weight_scale' is missing"},
           {{{"weight_packed", nibbles}, {"weight_scale", zeros({8, 1}, DType::kF8E4M3)}},
            "'m.x.weight_global_scale' is missing"},
           {{{"weight_packed", nibbles},
             {"weight_scale", zeros({8, 1}, DType::kF8E4M3)},
             {"weight_global_scale", zeros({2}, DType::kF32)}},
            "'m.x.weight_global_scale' is F32 [2], expected F32 [1] or []"},
           {{{"weight_scale", zeros({8, 1}, DType::kF8E4M3)},
             {"weight_global_scale", zeros({1}, DType::kF32)}},
            "'m.x.weight_packed' is missing"},
           {{{"weight_packed", nibbles}}, "'m.x.weight' is in blocks of 32, but has 16 columns"}}) {
    use("mixed-precision", each.parts);
    expect_has(load_error(), each.said);
  }
  table_ = {};
  add_matrix(8, 32);
  tensors_.resize(0);
  add("m.x.weight", zeros({8, 32}, DType::kI8));
  add("m.x.weight_scale", zeros({8, 1}, DType::kU8));
  expect_has(load_error(), "'m.x.weight' is I8 [8, 32], expected F8_E4M3 [8, 32]");
}

}  // namespace
}  // namespace temper::foreign
