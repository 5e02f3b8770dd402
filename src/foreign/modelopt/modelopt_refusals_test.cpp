// Folders of nvidia-modelopt whose configuration or tensors do not fit, and where folders say how they are
// quantized.
#include "checkpoints/quantized_test_support.h"
#include "foreign/forms.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;
using checkpoints::zeros;

class ModeloptRefusals : public checkpoints::Quantized {};

// Messages of configurations; "": it is read.
using Said = std::vector<std::pair<std::string, std::string>>;

TEST_F(ModeloptRefusals, ConfigurationsOfModelopt) {
  shape(2, 16);
  add("m.x.weight", zeros({2, 16}, DType::kF32));
  const std::string
      fp8 = R"({"quant_method": "modelopt", "quant_algo": "FP8", )",
      int4 = R"({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 8, )",
      mixed = R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": )";
  for (const auto& [json, said] :
       Said{{R"({"quant_method": "modelopt"})", "quant_algo is missing, expected one of [FP8, "},
            {R"({"quant_method": "modelopt", "quant_algo": 8})", "quant_algo is 8, expected one of [FP8, "},
            {R"("modelopt")", "quant_algo is missing, expected one of [FP8, "},
            {fp8 + R"("group_size": null})", ""},
            {fp8 + R"("group_size": 16})", ""},
            {fp8 + R"("group_size": "16"})", "group_size is \"16\", expected the columns of a block"},
            {fp8 + R"("group_size": 1000001})", "group_size is 1000001, expected the columns of a block"},
            {fp8 + R"("config_groups": []})", ""},
            {fp8 + R"("config_groups": {"g": 3}})", ""},
            {fp8 + R"("config_groups": {"g": {"weights": 3}}})", ""},
            {fp8 + R"("config_groups": {"g": {"weights": {"num_bits": "8", "group_size": 32}}}})", ""},
            {fp8 + R"("config_groups": {"g": {"weights": {"num_bits": 8}}}})", ""},
            {int4 + R"("config_groups": {"g": {"weights": {"num_bits": 4, "group_size": "8"}}}})", ""},
            {int4 + R"("config_groups": {"g": {"weights": {"num_bits": 4}}}})", ""},
            {mixed + "[]}", "quantized_layers, the quant_algo of each, is missing"},
            {mixed + "{}}", ""},
            {mixed + R"({"m.x": 3}})", "config.json] [m.x] quant_algo is missing, expected one of [FP8, "},
            {mixed + R"({"m.x": {"quant_algo": "FP4"}}})", "[m.x] quant_algo is \"FP4\", expected one of"},
            {mixed + R"({"m.x": {"quant_algo": "NVFP4", "group_size": -1}}})",
             "[m.x] group_size is -1, expected"}}) {
    SCOPED_TRACE(json);
    config(json);
    if (said.empty())
      EXPECT_EQ(load_error(), "");
    else
      expect_has(load_error(), said);
  }
}

TEST_F(ModeloptRefusals, TensorsOfModelopt) {
  shape(3, 32);
  add("m.x.weight", zeros({1, 32}, DType::kU8));
  add("m.x.weight_scale", zeros({3, 2}, DType::kF32));
  algorithm("W4A16_AWQ", R"(, "group_size": 16)");
  expect_has(load_error(), "'m.x.weight' has codes of pairs of rows, but 3 rows");
  shape(4, 32);
  add("m.x.weight", zeros({4, 32}, DType::kI8));
  add("m.x.weight_scale", zeros({4}, DType::kF32));
  add("m.x.pre_quant_scale", zeros({31}, DType::kF32));
  algorithm("W8A16");
  expect_has(load_error(), "'m.x.pre_quant_scale' is F32 [31], expected F32 or BF16 or F16 [32]");
  shape(4, 32);
  add("m.x.weight_scale", zeros({4}, DType::kF32));
  expect_has(load_error(), "'m.x.weight' is missing, but the other parts of its matrix exist");
  // Tiles of one have a scale of no dimension, too.
  shape(4, 32);
  add("m.x.weight", zeros({4, 32}, DType::kF8E4M3));
  add("m.x.weight_scale", zeros({}, DType::kF32));
  algorithm("fp8_pb_wo");
  EXPECT_EQ(load_error(), "");
  shape(4, 32);
  add("m.x.weight", zeros({4, 32}, DType::kF8E4M3));
  add("m.x.weight_scale", zeros({2, 1}, DType::kF32));
  expect_has(load_error(), "'m.x.weight_scale' is F32 [2, 1], expected F32 [1, 1, 1, 1] or [1, 1] or []");
}

// 255 is the one exponent that is no number; a second scale of 0 leaves zeros.
TEST_F(ModeloptRefusals, ScalesAtTheEnds) {
  shape(2, 32);
  const Tensor powers = zeros({2, 1}, DType::kU8);
  powers.data<uint8_t>()[1] = 255;
  add("m.x.weight", zeros({2, 16}, DType::kU8));
  add("m.x.weight_scale", powers);
  algorithm("mxfp4");
  expect_has(load_error(), "tensor 'm.x.weight': found nan at [1, 0]");
  shape(2, 32);
  const Tensor codes = zeros({1, 32}, DType::kU8);
  for (uint8_t& code : codes.values<uint8_t>()) code = 0x35;
  add("m.x.weight", codes);
  add("m.x.weight_scale", Tensor::from<float>(Values{1, 2}, {2, 1}));
  add("m.x.weight_scale_2", zeros({}, DType::kF32));
  algorithm("W4A8_AWQ", R"(, "group_size": 32)");
  EXPECT_EQ(load(), Values(64, 0.f));
}

TEST_F(ModeloptRefusals, ModulesOfMixedPrecision) {
  shape(2, 16);
  const Tensor codes = zeros({2, 16}, DType::kI8);
  for (int64_t i = 0; i < 32; ++i)
    static_cast<int8_t*>(const_cast<void*>(codes.raw()))[i] = static_cast<int8_t>(i - 9);
  add("m.x.weight", codes);
  add("m.x.weight_scale", Tensor::from<float>(Values{0.5f, 0.25f}, {2}));
  algorithm("MIXED_PRECISION", R"(, "quantized_layers": {"m.x": {"quant_algo": "W8A16"}})");
  const Values read = load();
  EXPECT_EQ(ModelFolder::open(folder_.path()).form()->name(), "modelopt MIXED_PRECISION");
  EXPECT_EQ(read[0], -4.5f);
  EXPECT_EQ(read[31], 5.5f);
}

TEST_F(ModeloptRefusals, FilesBesideThatSayNothingChangeNothing) {
  shape(4, 32);
  add("m.x.weight", zeros({2, 32}, DType::kU8));
  add("m.x.weight_scale", zeros({4, 2}, DType::kF32));
  algorithm("W4A16_AWQ", R"(, "group_size": 16)");
  for (const char* extra : {"[]", "{}", R"({"quantization": 3})", R"({"quantization": {}})",
                            R"({"quantization": {"quant_algo": 3, "group_size": "32"}})",
                            R"({"quantization": {"quant_algo": "W4A16_AWQ", "group_size": 16}})"}) {
    write_file(folder_ / "hf_quant_config.json", extra);
    EXPECT_EQ(load_error(), "") << extra;
  }
  // The width is only in hf_quant_config.json, or is not a number in config.json.
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"group_size": 16}})");
  for (const char* own : {"", R"(, "group_size": null)"}) {
    algorithm("W4A16_AWQ", own);
    EXPECT_EQ(load_error(), "") << own;
  }
  config(R"("modelopt")");
  expect_has(load_error(), "quant_algo is missing, expected one of");
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "W4A16_AWQ"}})");
  config(R"({"quant_method": "modelopt"})");
  expect_has(load_error(), "quant_algo is missing, expected one of");
  config(R"({"quant_method": "modelopt", "quant_algo": 3})");
  expect_has(load_error(), "quant_algo is 3, expected one of");
}

TEST_F(ModeloptRefusals, WhereAFolderSaysHowItIsQuantized) {
  shape(2, 16);
  add("m.x.weight", zeros({2, 16}, DType::kF32));
  write();
  const auto form_with = [&](const std::string& json) {
    write_file(folder_ / "config.json", json);
    const auto form = checkpoints::quantized_form_of(folder_.path());
    return form ? form->name() : "none";
  };
  EXPECT_EQ(form_with("[]"), "none");
  EXPECT_EQ(form_with(R"({"quantization_config": null})"), "none");
  EXPECT_EQ(form_with(R"({"compression_config": {"quant_method": "fp8"}})"), "fp8");
  EXPECT_EQ(form_with(R"({"quantization_config": "fp8"})"), "fp8");
  EXPECT_EQ(form_with(R"({"quantization_config": {"quant_method": "mxfp4"}})"), "none");
  expect_has(error_of([&] { form_with(R"({"quantization_config": 3})"); }),
             "quant_method is 3, expected one of");
  expect_has(error_of([&] { form_with(R"({"quantization_config": {"quant_method": 3}})"); }),
             "quant_method is 3, expected one of");
  remove_all(folder_ / "config.json");
  EXPECT_EQ(checkpoints::quantized_form_of(folder_.path()), nullptr);
  write_file(folder_ / "quant_config.json", R"({"w_bit": 4, "q_group_size": 128, "version": "GEMM"})");
  EXPECT_EQ(checkpoints::quantized_form_of(folder_.path())->name(), "awq");
  write_file(folder_ / "hf_quant_config.json", "[]");
  expect_has(error_of([&] { checkpoints::quantized_form_of(folder_.path()); }),
             "hf_quant_config.json] 'quantization' is missing, expected how the folder is quantized");
}

TEST_F(ModeloptRefusals, ModelsThatAreQuantizedAlready) {
  const auto refused_with = [&](const std::string& json) {
    write_file(folder_ / "config.json", json);
    return error_of([&] { checkpoints::check_not_quantized(folder_.path()); });
  };
  EXPECT_EQ(error_of([&] { checkpoints::check_not_quantized(folder_.path()); }), "")
      << "there is no config.json";
  EXPECT_EQ(refused_with("{}"), "");
  EXPECT_EQ(refused_with("[]"), "");
  EXPECT_EQ(refused_with(R"({"quantization_config": null})"), "");
  expect_has(
      refused_with(R"({"quantization_config": {"quant_method": "fp8"}})"),
      fmt::format("[quantize] the model {} is quantized already (fp8); use the model that it was made from",
                  folder_.path()));
  expect_has(refused_with(R"({"quantization_config": {"quant_method": "mxfp4"}})"),
             "is quantized already (mxfp4);");
}

}  // namespace
}  // namespace temper::foreign
