// Which quantizers a configuration gives models of several families.
#include "quantizers/quantizer_plan.h"

#include <algorithm>
#include <set>

#include "models/config_test_support.h"

namespace temper::models {
namespace {

using quantizers::plan_quantizers;
using quantizers::PlannedQuantizer;
using quantizers::QuantizeOptions;
using quantizers::QuantizerKind;
using quantizers::QuantizerPlan;
using quantizers::Sharing;

WeightTable table_of(const char* type) {
  return layers::decoder_weight_table(configure(tiny_config(type), "config.json"));
}

QuantizerPlan plan(const char* type, const QuantizeOptions& options) {
  return plan_quantizers(table_of(type), options);
}

std::vector<std::string> names_of(const QuantizerPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedQuantizer& quantizer : plan.quantizers) names.push_back(quantizer.name);
  return names;
}

void expect_fails(const char* type, const QuantizeOptions& options, const std::string& message) {
  EXPECT_EQ(error_of([&] { plan(type, options); }), message);
}

TEST(QuantizerPlan, APresetIsForAllLinearsOfLayers) {
  const QuantizerPlan found = plan("llama", {"FP8_DEFAULT"});
  std::vector<std::string> expected;
  for (const char* layer : {"layers.0.", "layers.1."})
    for (const char* module : {"attention.qkv", "attention.output", "mlp.gate_up", "mlp.down"})
      for (const char* role : {".weight_quantizer", ".input_quantizer"})
        expected.push_back(std::string(layer) + module + role);
  EXPECT_EQ(names_of(found), expected);
  ASSERT_EQ(found.rules.size(), 1u);
  EXPECT_EQ(found.rules[0].rule, "preset FP8_DEFAULT");
  EXPECT_EQ(found.rules[0].matched, 16);
  EXPECT_EQ(found.rules[0].decided, 16);
  for (const PlannedQuantizer& quantizer : found.quantizers) {
    EXPECT_EQ(quantizer.amax, (Shape{1, 1}));
    EXPECT_EQ(quantizer.kind.format, "fp8");
  }
}

TEST(QuantizerPlan, NamesOfPresets) {
  for (const char* name : {"NVFP4", "NVFP4_DEFAULT", "NVFP4_DEFAULT_CFG", "NVFP4_CFG"})
    EXPECT_EQ(quantizers::quantizer_preset(name).name, "NVFP4_DEFAULT");
  for (const char* name : {"W4A8", "W4A8_AWQ", "W4A8_AWQ_BETA", "W4A8_AWQ_CFG", "W4A8_AWQ_BETA_CFG"})
    EXPECT_EQ(quantizers::quantizer_preset(name).name, "W4A8_AWQ_BETA");
  for (const char* name : {"NVFP4_AWQ", "NVFP4_AWQ_CFG", "NVFP4_AWQ_LITE", "NVFP4_AWQ_LITE_CFG"})
    EXPECT_EQ(quantizers::quantizer_preset(name).name, "NVFP4_AWQ_LITE");
  for (const quantizers::QuantizerPreset& preset : quantizers::quantizer_presets())
    EXPECT_EQ(quantizers::quantizer_preset(preset.name).name, preset.name);
  expect_has(error_of([] { quantizers::quantizer_preset("W4A8_AQW"); }), "(did you mean 'W4A8_AWQ'?)");
  EXPECT_EQ(error_of([] { quantizers::quantizer_preset("INT4"); }),
            "[quantize.preset] 'INT4' is not a preset; write INT4_BLOCKWISE_WEIGHT_ONLY or INT4_AWQ");
  expect_fails(
      "llama", {"NVFP4_DEFUALT"},
      "[quantize.preset] 'NVFP4_DEFUALT' is not a preset (did you mean 'NVFP4_DEFAULT'?); there are "
      "FP8_DEFAULT, FP8_PER_CHANNEL_PER_TOKEN, "
      "FP8_2D_BLOCKWISE_WEIGHT_ONLY, INT8_DEFAULT, INT8_SMOOTHQUANT, INT8_WEIGHT_ONLY, "
      "INT4_BLOCKWISE_WEIGHT_ONLY, INT4_AWQ, W4A16_ASYM, NVFP4_DEFAULT, NVFP4_AWQ_LITE, NVFP4_AWQ_CLIP, "
      "NVFP4_AWQ_FULL, W4A16_NVFP4, "
      "W4A8_AWQ_BETA, W4A8_MXFP4_FP8, MXFP8_DEFAULT, MXFP6_DEFAULT, MXFP4_DEFAULT, MXINT8_DEFAULT");
}

TEST(QuantizerPlan, LaterRulesDecideAndEachIsCounted) {
  const QuantizerKind none, int8{"int8", Sharing::kRow};
  const QuantizerPlan found = plan(
      "llama", {"FP8_DEFAULT", {{"layers.0.*", int8, none}, {"model.layers.*.mlp.down_proj", none, {}}}});
  EXPECT_EQ(found.rules[0].decided, 7);  // of layer 1, less one weight
  EXPECT_EQ(found.rules[1].rule, "rule 'layers.0.*'");
  EXPECT_EQ(found.rules[1].matched, 8);
  EXPECT_EQ(found.rules[1].decided, 7);
  EXPECT_EQ(found.rules[2].matched, 2);
  // Tensors of files: q, k, v and gate, up are fused here, and so are all experts of a layer.
  EXPECT_EQ(found.rules[0].tensors, 14);
  EXPECT_EQ(found.rules[1].tensors, 7);
  EXPECT_EQ(found.rules[2].tensors, 2);
  const QuantizerPlan mixture =
      plan("qwen3_moe", {"FP8_DEFAULT", {{"layers.0.mlp.experts.gate_up", int8, {}}}});
  EXPECT_EQ(mixture.rules[0].tensors, 2 * (4 + 6 * 3));
  EXPECT_EQ(mixture.rules[1].tensors, 6 * 2);
  EXPECT_EQ(found.rules[2].decided, 2);
  EXPECT_EQ(found.find("layers.0.mlp.down.weight_quantizer"), nullptr);
  EXPECT_EQ(found.find("layers.0.mlp.gate_up.input_quantizer"), nullptr);
  const PlannedQuantizer* const qkv = found.find("layers.0.attention.qkv.weight_quantizer");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->kind, int8);
  EXPECT_EQ(qkv->amax, (Shape{qkv->values[0], 1}));
  EXPECT_EQ(qkv->groups(), "channel");
}

// What is rounded twice keeps the amax of its blocks, and has one more of each matrix, which follows from
// them.
TEST(QuantizerPlan, WeightsThatAreRoundedTwice) {
  const QuantizerKind twice{"int4", Sharing::kBlock, 16, false, "fp8"};
  for (const bool per_expert : {true, false}) {
    const QuantizerPlan found = plan("qwen3_moe", {"", {{"layers.*", twice, {}}}, per_expert});
    const PlannedQuantizer* const qkv = found.find("layers.0.attention.qkv.weight_quantizer");
    ASSERT_NE(qkv, nullptr);
    EXPECT_EQ(qkv->formats(), "int4, then fp8");
    EXPECT_EQ(qkv->amax, (Shape{qkv->values[0], qkv->values[1] / 16}));
    EXPECT_EQ(qkv->second_amax(), (Shape{1, 1}));
    const PlannedQuantizer* const down = found.find("layers.0.mlp.experts.down.weight_quantizer");
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(down->second_amax(), (Shape{per_expert ? down->experts : 1, 1, 1}));
  }
  expect_fails(
      "llama", {"", {{"layers.0.mlp.down", QuantizerKind{"fp8", Sharing::kTensor, 0, false, "fp8"}}}},
      "[quantize] layers.0.mlp.down.weight is fp8, then fp8: what is rounded twice is integers in "
      "blocks, and then fp8; write weights: int4, weights_per: block and weights_again: fp8, or leave "
      "weights_again out");
  for (const QuantizerKind& other : {QuantizerKind{"int4", Sharing::kRow, 0, false, "fp8"},
                                     QuantizerKind{"int4", Sharing::kBlock, 16, false, "int8"},
                                     QuantizerKind{"mxint8", Sharing::kTensor, 0, false, "fp8"}})
    expect_has(error_of([&] {
                 plan("llama", {"", {{"layers.0.mlp.down", other}}});
               }),
               "what is rounded twice is integers in blocks, and then fp8");
}

// Integers with zero points are calibrated by the ends of their values' ranges alone.
TEST(QuantizerPlan, ZeroPoints) {
  const QuantizerPlan found =
      plan("llama",
           {"W4A16_ASYM", {{"layers.*", QuantizerKind{"int4", Sharing::kBlock, 16, false, "", false}, {}}}});
  const PlannedQuantizer& weight = found.quantizers.front();
  EXPECT_TRUE(weight.has_zero_points());
  EXPECT_EQ(weight.formats(), "int4 with zero points");
  EXPECT_EQ(weight.amax, (Shape{weight.values[0], weight.values[1] / 16}));
  EXPECT_FALSE(plan("llama", {"INT8_WEIGHT_ONLY"}).quantizers.front().has_zero_points());
  const QuantizerKind tokens{"int8", Sharing::kRow, 0, true, "", false};
  EXPECT_FALSE(plan("llama", {"", {{"layers.*", {}, tokens}}}).quantizers.front().keeps_amax());
  const QuantizerKind unsigned_weights{"uint4", Sharing::kRow, 0, false, "", false};
  EXPECT_EQ(plan("llama", {"", {{"layers.*", unsigned_weights, {}}}}).quantizers.size(), 8u);
  expect_fails(
      "llama", {"", {{"layers.*", QuantizerKind{"uint4", Sharing::kRow}, {}}}},
      "[quantize] layers.0.attention.qkv.weight: uint4 has no negative numbers, which weights need: write "
      "weights_symmetric: false, too");
  for (const auto& [name, method] : quantizers::calibration_methods()) {
    const QuantizeOptions options{"", {{"layers.0.mlp.down", unsigned_weights, {}}}, true, method};
    if (std::set<std::string>{"max", "mse", "percentile"}.contains(name)) {
      EXPECT_EQ(plan("llama", options).quantizers.size(), 1u) << name;
      continue;
    }
    const bool of_ends = name == "entropy" || name == "awq_clip";
    expect_fails(
        "llama", options,
        fmt::format(
            "[quantize.calibration] {} {}, and layers.0.mlp.down.weight_quantizer is uint4 with zero "
            "points: write calibration: max, mse or percentile, or leave out what makes it asymmetric",
            name,
            of_ends ? "looks for one amax and not for both ends of a range"
                    : "finds factors of columns, which folders with zero points have no tensors for"));
  }
}

TEST(QuantizerPlan, EachExpertHasAQuantizerOrAllShareOne) {
  const WeightTable table = table_of("qwen3_moe");
  const auto* const spec = table.find("layers.0.mlp.experts.gate_up.weight");
  ASSERT_NE(spec, nullptr);
  const int64_t experts = spec->stacked_shape[0];
  const QuantizerKind fp8{"fp8"};
  for (const bool per_expert : {true, false}) {
    const QuantizerPlan found =
        plan_quantizers(table, {"", {{"layers.0.mlp.experts.*", fp8, {}}}, per_expert});
    ASSERT_EQ(found.quantizers.size(), 2u);
    const PlannedQuantizer& quantizer = found.quantizers[0];
    EXPECT_EQ(quantizer.values, spec->stacked_shape);
    EXPECT_EQ(quantizer.count, per_expert ? experts : 1);
    EXPECT_EQ(quantizer.amax, (Shape{per_expert ? experts : 1, 1, 1}));
    EXPECT_EQ(found.rules[0].matched, per_expert ? 2 * experts : 2);
  }
}

// Calibrated inputs belong to an expert as its weights do; what each pass finds is one quantizer.
TEST(QuantizerPlan, InputsOfExpertsAreCountedAsTheirWeights) {
  const WeightTable table = table_of("qwen3_moe");
  const auto* const spec = table.find("layers.0.mlp.experts.gate_up.weight");
  ASSERT_NE(spec, nullptr);
  const int64_t experts = spec->stacked_shape[0], width = spec->shape[1];
  const auto planned = [&](const QuantizerKind& inputs, bool per_expert) {
    return plan_quantizers(table, {"", {{"layers.0.mlp.experts.gate_up", {}, inputs}}, per_expert});
  };
  const QuantizerPlan own = planned({"fp8"}, true);
  ASSERT_EQ(own.quantizers.size(), 1u);
  EXPECT_EQ(own.quantizers[0].name, "layers.0.mlp.experts.gate_up.input_quantizer");
  EXPECT_EQ(own.quantizers[0].values, (Shape{experts, 1, width}));
  EXPECT_EQ(own.quantizers[0].amax, (Shape{experts, 1, 1}));
  EXPECT_EQ(own.quantizers[0].count, experts);
  EXPECT_EQ(own.rules[0].matched, experts);
  EXPECT_EQ(planned({"fp8"}, false).quantizers[0].amax, (Shape{1, 1, 1}));
  for (const QuantizerKind& found : {QuantizerKind{"fp8", Sharing::kRow, 0, true}, QuantizerKind{"mxfp8"}}) {
    EXPECT_EQ(planned(found, true).quantizers[0].count, 1);
    EXPECT_FALSE(planned(found, true).quantizers[0].keeps_amax());
  }
}

// Keys and values are the last columns of q|k|v; outputs are a module's rows.
TEST(QuantizerPlan, OutputsKeysAndValues) {
  const WeightTable table = table_of("qwen3");
  const WeightSpec& qkv = *table.find("layers.1.attention.qkv.weight");
  const QuantizerKind fp8{"fp8"};
  const QuantizerPlan found = plan_quantizers(
      table, {"", {{"layers.*", {}, {}, {}, fp8}, {"layers.1.mlp.gate_up", {}, {}, QuantizerKind{"int8"}}}});
  EXPECT_EQ(names_of(found), (std::vector<std::string>{
                                 "layers.0.attention.k_bmm_quantizer", "layers.0.attention.v_bmm_quantizer",
                                 "layers.1.attention.k_bmm_quantizer", "layers.1.attention.v_bmm_quantizer",
                                 "layers.1.mlp.gate_up.output_quantizer"}));
  EXPECT_EQ(found.quantizers[0].values, (Shape{1, qkv.segments[1].size}));
  EXPECT_EQ(found.quantizers[4].values, (Shape{1, table.find("layers.1.mlp.gate_up.weight")->shape[0]}));
  EXPECT_EQ(found.quantizers[4].amax, (Shape{1, 1}));
  EXPECT_EQ(found.rules[0].matched, 4);
  EXPECT_EQ(
      error_of([&] {
        plan_quantizers(table, {"", {{"layers.*.mlp.*", {}, {}, {}, fp8}}});
      }),
      "[quantize.rules] 'layers.*.mlp.*' names no keys and values that attention keeps: kv_cache is for "
      "attention.qkv of models without latent attention");
  // Nor is it left aside where the rule says something else, too.
  expect_has(error_of([&] {
               plan("deepseek_v3", {"", {{"layers.0.*", fp8, {}, {}, fp8}}});
             }),
             "'layers.0.*' names no keys and values that attention keeps");
  expect_has(error_of([&] {
               plan_quantizers(table, {"", {{"layers.*.atention.qkv", {}, {}, {}, fp8}}});
             }),
             "did you mean 'layers.*.attention.qkv'?");
  EXPECT_EQ(
      error_of([&] {
        plan("qwen3_moe", {"", {{"layers.*.mlp.experts.down", {}, {}, fp8}}});
      }),
      "[quantize] the outputs of layers.0.mlp.experts.down cannot be quantized: what experts give is added "
      "up; name other modules for outputs");
}

// A shared expert's gate has one row, and a gated delta layer's decays have small linears.
TEST(QuantizerPlan, PresetsLeaveOutGatesAndDecaysWhichRulesMayName) {
  const QuantizerKind fp8{"fp8"};
  const QuantizerPlan found =
      plan("qwen3_next", {"FP8_DEFAULT", {{"layers.*.mlp.experts.*", {}, QuantizerKind{}}}});
  const std::vector<std::string> names = names_of(found);
  const auto any = [&](const char* part) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(any(".delta.qkvz."));
  EXPECT_FALSE(any(".delta.ba."));
  EXPECT_FALSE(any("shared_expert_gate"));
  EXPECT_FALSE(any(".gate.weight_quantizer"));
  EXPECT_EQ(plan("qwen3_next", {"", {{"layers.0.delta.ba", fp8, {}}}}).quantizers.size(), 1u);
}

TEST(QuantizerPlan, RefusedPatterns) {
  const QuantizerKind fp8{"fp8"};
  expect_fails(
      "llama", {"", {{"layers.*.mlp.donw", fp8, {}}}},
      "[quantize.rules] 'layers.*.mlp.donw' matches no weight that quantizers may target; did you mean "
      "'layers.*.mlp.down'?; there are layers.*.attention.output, layers.*.attention.qkv, "
      "layers.*.mlp.down, layers.*.mlp.gate_up, model.layers.*.mlp.down_proj, "
      "model.layers.*.mlp.gate_proj, model.layers.*.mlp.up_proj, model.layers.*.self_attn.k_proj, "
      "model.layers.*.self_attn.o_proj, model.layers.*.self_attn.q_proj, "
      "model.layers.*.self_attn.v_proj");
  expect_fails(
      "llama", {"", {{"model.layers.0.self_attn.q_proj", fp8, {}}}},
      "[quantize.rules] 'model.layers.0.self_attn.q_proj' names a part of layers.0.attention.qkv, but "
      "not model.layers.0.self_attn.k_proj: they share their scales, as readers of the exported folder "
      "fuse them; name all of them, or 'layers.0.attention.qkv'");
  EXPECT_EQ(plan("llama", {"", {{"model.layers.0.self_attn.*", fp8, {}}}}).quantizers.size(), 2u);
  // Routers are no weights that quantizers may target.
  EXPECT_NE(error_of([&] { plan("qwen3_moe", {"", {{"layers.0.mlp.gate", fp8, {}}}}); }), "");
}

TEST(QuantizerPlan, NothingThatIsLeftIsAnError) {
  const QuantizerKind none;
  expect_fails("llama", {"FP8_DEFAULT", {{"layers.*", none, none}}},
               "[quantize] leaves nothing to quantize: for all that preset FP8_DEFAULT names, the last rule "
               "says none; leave quantize out, or that rule");
  EXPECT_TRUE(plan("llama", {}).empty());
}

TEST(QuantizerPlan, RefusedFormatsAndBlocks) {
  const auto one = [](const QuantizerKind& weights, std::optional<QuantizerKind> inputs = {}) {
    return QuantizeOptions{"", {{"layers.0.mlp.down", weights, std::move(inputs)}}};
  };
  const WeightTable table = table_of("llama");
  const int64_t columns = table.find("layers.0.mlp.down.weight")->shape[1];
  EXPECT_NE(error_of([&] { plan("llama", one({"nvpf4"})); }).find("did you mean 'nvfp4'?"),
            std::string::npos);
  expect_fails(
      "llama", one({"int4", Sharing::kBlock, 7}),
      fmt::format("[quantize] layers.0.mlp.down.weight has {} columns, which blocks of 7 (int4) do not "
                  "divide; give it another format or block in quantize.rules, or none",
                  columns));
  expect_fails(
      "llama", one({"nvfp4", Sharing::kRow}),
      "[quantize] layers.0.mlp.down.weight: nvfp4 finds the scales of its own blocks; leave weights_per "
      "out");
  expect_fails("llama", one({"uint8", Sharing::kRow}),
               "[quantize] layers.0.mlp.down.weight: uint8 has no negative numbers, which weights need: "
               "write weights_symmetric: false, too");
  expect_fails("llama", one({}, QuantizerKind{"int8", Sharing::kRow}),
               "[quantize] the inputs of layers.0.mlp.down: tokens cannot be calibrated one by one; write "
               "inputs_amax: dynamic");
  expect_fails("llama", one({}, QuantizerKind{"int8", Sharing::kBlock, 16}),
               "[quantize] the inputs of layers.0.mlp.down: int8 in blocks is for weights; write inputs_per: "
               "tensor or token");
  expect_fails(
      "gpt_oss", {"FP8_DEFAULT"},
      "[quantize] the inputs of layers.0.mlp.experts.gate_up cannot be quantized: experts with biases read "
      "them as they are; add the rule {modules: layers.*.mlp.experts.*, inputs: none}");
}

}  // namespace
}  // namespace temper::models
