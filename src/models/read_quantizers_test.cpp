// Exported folders compute what training computed: inputs, keys and values are rounded as they say.
#include "models/read_quantizers.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "models/export.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_amax.h"
#include "tests/support/op_testing.h"

namespace temper::models {
namespace {

using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;
using quantizers::Sharing;

// At two documents of one row.
op_testing::Doubles logits_of(const Model& model) {
  const std::vector<int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6, 2, 7, 1, 8, 2, 8};
  Tape tape(false);
  const Var hidden = model.decoder.forward(tape, layers::make_input(tokens, std::vector<int32_t>{8, 6}));
  return op_testing::values_of(model.decoder.logits(tape, hidden).value);
}

double distance(const op_testing::Doubles& a, const op_testing::Doubles& b) {
  double farthest = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    farthest = std::max(farthest, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(a[i]));
  }
  return farthest / largest;
}

// Of a model of these sizes with quantizers, factors of columns that differ among them.
std::unique_ptr<Model> calibrated(const QuantizeOptions& options, const char* type) {
  auto model = tiny_model({.type = type, .deviation = 0.1, .quantize = options, .sizes = few_to_export()});
  float factor = 0.4f;
  for (quantizers::Quantizer& each : model->decoder.quantizers().all())
    if (each.columns.exist()) {
      for (float& column : each.columns.whole.values<float>())
        column = factor = factor > 2 ? 0.4f : factor + 0.13f;
      each.columns.take_own();
    }
  set_made_up_amax(*model);
  return model;
}

// With the kernels of the model that was trained.
BuildOptions eager() {
  BuildOptions options;
  options.ops = ops::all_eager();
  return options;
}

// From what was trained, relative to the largest logit.
struct Distances {
  double whole, weights;  // of the folder with what passes rounded, and of its weights alone
};

Distances distances_of(const QuantizeOptions& options, ExportForm form, const char* type) {
  const auto model = calibrated(options, type);
  const TemporaryDirectory out;
  export_model(*model, out / "m", "", form);
  const auto trained = logits_of(*model);
  return {distance(trained, logits_of(*load_as_quantized(out / "m", eager()))),
          distance(trained, logits_of(*load_model(out / "m", eager())))};
}

struct Case {
  QuantizeOptions options;
  double tolerance = 0;  // relative
};

void expect_what_was_trained(const Case& each, ExportForm form) {
  for (const char* type : {"qwen3", "qwen3_moe"}) {
    SCOPED_TRACE(fmt::format("{} {}", type, each.options.preset));
    const Distances found = distances_of(each.options, form, type);
    EXPECT_LE(found.whole, each.tolerance);
    EXPECT_GT(found.weights, 1e-3) << "rounding what passes does not matter here";
  }
}

// Integers lie one rounding apart (docs/quantized_folders.md), and so do numbers of rows, whose scales are
// stored; a factor of a column is multiplied into the weight.
TEST(ReadQuantizers, FoldersOfModeloptComputeWhatWasTrained) {
  const QuantizerKind fp8{"fp8"};
  for (const Case& each :
       {Case{{"FP8_DEFAULT"}}, Case{{"FP8_PER_CHANNEL_PER_TOKEN"}, 1e-6}, Case{{"NVFP4_DEFAULT"}},
        Case{{"MXFP8_DEFAULT"}}, Case{{"W4A8_MXFP4_FP8"}}, Case{{"INT8_DEFAULT"}, 1e-6},
        Case{{"W4A8_AWQ_BETA"}}, Case{{"FP8_DEFAULT", {{"layers.*.attention.qkv", {}, {}, {}, fp8}}}}})
    expect_what_was_trained(each, ExportForm::kModelopt);
}

TEST(ReadQuantizers, FactorsOfColumnsAreThoseOfTraining) {
  QuantizeOptions smooth{"INT8_SMOOTHQUANT"};
  smooth.calibration = quantizers::CalibrationMethod::kSmoothQuant;
  expect_what_was_trained({smooth, 1e-5}, ExportForm::kModelopt);
}

TEST(ReadQuantizers, FoldersOfCompressedTensorsComputeWhatWasTrained) {
  const QuantizerKind weights{"int8", Sharing::kRow}, by_token{"int8", Sharing::kRow, 0, true};
  QuantizerKind token_zeros = by_token, zeros{"int8"};
  token_zeros.symmetric = zeros.symmetric = false;
  for (const Case& each :
       {Case{{"FP8_DEFAULT"}}, Case{{"FP8_PER_CHANNEL_PER_TOKEN"}, 1e-6}, Case{{"NVFP4_DEFAULT"}, 1e-6},
        Case{{"MXFP8_DEFAULT"}}, Case{{"MXFP4_DEFAULT"}}, Case{{"INT8_DEFAULT"}, 1e-6},
        Case{{"", {{"layers.*", weights, by_token}}}, 1e-6}, Case{{"", {{"layers.*", weights, zeros}}}, 1e-6},
        Case{{"", {{"layers.*", weights, token_zeros}}}, 1e-6},
        Case{{"FP8_DEFAULT", {{"layers.*.mlp.*", weights, QuantizerKind{"int8"}}}}, 1e-6}})
    expect_what_was_trained(each, ExportForm::kCompressedTensors);
}

// Formats of weights alone, and of inputs of some modules.
TEST(ReadQuantizers, WhatIsNotRoundedStaysAsItIs) {
  for (const QuantizeOptions& options :
       {QuantizeOptions{"INT8_WEIGHT_ONLY"}, QuantizeOptions{"W4A16_NVFP4"}}) {
    const Distances found = distances_of(options, ExportForm::kModelopt, "qwen3");
    EXPECT_EQ(found.whole, found.weights);
  }
  const TemporaryDirectory out;
  const auto read = [&](const std::string& folder) {
    return load_as_quantized(folder, eager())->decoder.quantizers().plan().quantizers.size();
  };
  export_model(*calibrated({"FP8_DEFAULT"}, "qwen3"), out / "all", "");
  EXPECT_EQ(read(out / "all"), 4u);
}

// A folder of compressed-tensors in FP8 whose one group has these targets.
std::string with_targets(const TemporaryDirectory& out, const Json::Array& targets) {
  const std::string folder = out / "m";
  export_model(*calibrated({"FP8_DEFAULT"}, "qwen3"), folder, "", ExportForm::kCompressedTensors);
  Json config = Json::parse_file(folder + "/config.json");
  Json quantization = config.at("quantization_config"), groups = quantization.at("config_groups"),
       group = groups.at("group_0");
  group.set("targets", targets);
  groups.set("group_0", group);
  quantization.set("config_groups", groups);
  config.set("quantization_config", quantization);
  write_file(folder + "/config.json", config.dump());
  return folder;
}

TEST(ReadQuantizers, TargetsAreExpressionsOfPython) {
  const TemporaryDirectory out;
  const auto modules = [&](const char* target) {
    const auto model = load_as_quantized(with_targets(out, {target}), eager());
    return model->decoder.quantizers().plan().quantizers.size();
  };
  const size_t all = modules("Linear");
  EXPECT_EQ(all, 4u);
  for (const char* target :
       {"re:(?i).*_PROJ$", "re:.*(?<!lm_)proj$", "re:(?P<layer>model\\.layers\\.\\d+)\\..*"})
    EXPECT_EQ(modules(target), all) << target;
  EXPECT_EQ(modules("re:layers.*"), 0u) << "matches from the beginning";
}

TEST(ReadQuantizers, TargetsThatAreNoExpressionsAreRefused) {
  const TemporaryDirectory out;
  const std::string folder = with_targets(out, {"re:.*(proj"}),
                    message = error_of([&] { load_as_quantized(folder, eager()); });
  EXPECT_TRUE(message.starts_with(
      fmt::format("[{}/config.json] [group_0] targets: pattern '.*(proj' cannot be compiled: ", folder)))
      << message;
}

TEST(ReadQuantizers, MatricesThatNoGroupNamesAreReported) {
  const TemporaryDirectory out;
  const auto warning = [&](const Json::Array& targets) {
    testing::internal::CaptureStderr();
    load_as_quantized(with_targets(out, targets), eager());
    return testing::internal::GetCapturedStderr();
  };
  const auto line = [&](const char* name) {
    return fmt::format(
        "[{}] '{}' is quantized, but among the targets of no group of quantization_config: its "
        "inputs are not rounded (reported once)\n",
        out / "m", name);
  };
  expect_has(warning({"re:.*self_attn.*"}), line("model.layers.0.mlp.gate_proj.weight"));
  expect_has(warning({"Qwen3MLP"}), line("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_EQ(warning({"Linear"}).find("reported once"), std::string::npos);
}

TEST(ReadQuantizers, WhatIsFusedHasOneFormat) {
  const TemporaryDirectory out;
  export_model(*calibrated({"FP8_DEFAULT"}, "qwen3"), out / "m", "", ExportForm::kCompressedTensors);
  Json config = Json::parse_file(out / "m/config.json");
  Json quantization = config.at("quantization_config"), groups = quantization.at("config_groups");
  Json other = groups.at("group_0");
  other.set("targets", Json::Array{"re:.*k_proj"});
  other.set("input_activations", Json());
  groups.set("group_1", other);
  quantization.set("config_groups", groups);
  config.set("quantization_config", quantization);
  write_file(out / "m/config.json", config.dump());
  EXPECT_EQ(error_of([&] { load_as_quantized(out / "m", eager()); }),
            fmt::format("[{}] the inputs of 'model.layers.0.self_attn.q_proj.weight' and "
                        "'model.layers.0.self_attn.k_proj.weight' are rounded in different ways, but are one "
                        "input of one module here; give all of them one format",
                        out / "m"));
  load_model(out / "m", {});
}

}  // namespace
}  // namespace temper::models
