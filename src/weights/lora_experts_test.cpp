#include "weights/lora_experts.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper {
namespace {

// A layer with a router and three experts of width 2, hidden 4.
WeightTable mixture_table() {
  WeightTable table;
  table.add({.name = "layers.0.attention.q.weight",
             .shape = {4, 4},
             .axes = {"heads", "hidden"},
             .sources = {{"model.layers.0.self_attn.q_proj.weight", 4}},
             .lora = LoraRole::kLinear});
  table.add({.name = "layers.0.mlp.gate.weight",
             .shape = {3, 4},
             .axes = {"experts", "hidden"},
             .sources = {{"model.layers.0.mlp.gate.weight", 3}},
             .lora = LoraRole::kRouter});
  WeightSpec in{.name = "layers.0.mlp.experts.gate_up.weight",
                .shape = {12, 4},
                .axes = {"experts*width", "hidden"},
                .sources = {},
                .lora = LoraRole::kExperts,
                .layer = 0};
  WeightSpec out{.name = "layers.0.mlp.experts.down.weight",
                 .shape = {12, 2},
                 .axes = {"experts*hidden", "width"},
                 .sources = {},
                 .lora = LoraRole::kExperts};
  for (int e = 0; e < 3; ++e) {
    const std::string expert = fmt::format("model.layers.0.mlp.experts.{}.", e);
    in.sources.push_back({expert + "gate_proj.weight", 2});
    in.sources.push_back({expert + "up_proj.weight", 2});
    out.sources.push_back({expert + "down_proj.weight", 4});
  }
  in.stacked = "model.layers.0.mlp.experts.gate_up_proj";
  in.stacked_shape = {3, 4, 4};
  out.stacked = "model.layers.0.mlp.experts.down_proj";
  out.stacked_shape = {3, 4, 2};
  table.add(in);
  table.add(out);
  return table;
}

LoraConfig of_parameters(std::vector<std::string> names) {
  LoraConfig config;
  config.targets = {};
  config.parameters = std::move(names);
  return config;
}
LoraConfig of_modules(std::vector<std::string> names) {
  LoraConfig config;
  config.targets = {.names = std::move(names)};
  return config;
}

std::string refusal_of(const LoraConfig& config) {
  return error_of([&] { plan_lora(mixture_table(), config, "lora."); });
}

std::vector<std::string> files(const WeightTable& table) {
  std::vector<std::string> names;
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : spec.sources)
      names.push_back(source.name.substr(std::string("base_model.model.model.layers.0.").size()));
  return names;
}

TEST(LoraOfExperts, AllLinearLeavesRoutersAndExpertsOut) {
  const WeightTable base = mixture_table();
  const LoraPlan plan = plan_lora(base, {}, "");
  ASSERT_EQ(plan.targets.size(), 1u);
  EXPECT_EQ(plan.targets[0].module, "model.layers.0.self_attn.q_proj");
}

// As PEFT nests them: the last of a module's parameters is the outermost.
TEST(LoraOfExperts, StackedTensorsHaveOnePairEach) {
  const WeightTable base = mixture_table();
  const LoraConfig config = of_parameters({"mlp.experts.down_proj", "experts.gate_up_proj", "gate.weight"});
  const LoraPlan plan = plan_lora(base, config, "");
  const WeightTable table = lora_table(base, plan);
  EXPECT_EQ(files(table), (std::vector<std::string>{
                              "mlp.gate.lora_A.weight", "mlp.gate.lora_B.weight",
                              "mlp.experts.base_layer.lora_A.weight", "mlp.experts.base_layer.lora_B.weight",
                              "mlp.experts.lora_A.weight", "mlp.experts.lora_B.weight"}));
  const WeightSpec& b = *table.find("layers.0.mlp.experts.gate_up.lora_B.gate_up_proj");
  EXPECT_EQ(b.shape, Shape({12, 8}));
  EXPECT_EQ(b.transposed_rows, 3);
  EXPECT_EQ(table.find("layers.0.mlp.experts.down.lora_A")->shape, Shape({24, 2}));
  std::vector<std::string> names;
  for (const std::string& name : files(table)) names.push_back("base_model.model.model.layers.0." + name);
  EXPECT_EQ(files(lora_table(base, plan_lora_of(base, config, names, ""))), files(table));
  const LoraPlan one = plan_lora(base, of_parameters({"down_proj"}), "");
  EXPECT_EQ(files(lora_table(base, one)).front(), "mlp.experts.lora_A.weight");
}

TEST(LoraOfExperts, ModulesOneByOneStandTogether) {
  const WeightTable base = mixture_table();
  const LoraConfig config = of_modules({"gate_proj", "up_proj"});
  const LoraPlan plan = plan_lora(base, config, "");
  ASSERT_EQ(plan.targets.size(), 2u);
  EXPECT_EQ(plan.targets[1].row, 2);
  const WeightTable table = lora_table(base, plan);
  EXPECT_EQ(table.find("layers.0.mlp.experts.gate_up.lora_A")->shape, Shape({48, 4}));
  EXPECT_EQ(table.find("layers.0.mlp.experts.gate_up.lora_B.up_proj")->shape, Shape({6, 8}));
  for (const WeightSpec& spec : table.specs()) EXPECT_EQ(spec.layer, 0) << spec.name;
  EXPECT_EQ(files(table)[1], "mlp.experts.0.up_proj.lora_A.weight");
  EXPECT_EQ(files(table)[2], "mlp.experts.1.gate_proj.lora_A.weight");
  std::vector<std::string> names;
  for (const std::string& name : files(table)) names.push_back("base_model.model.model.layers.0." + name);
  EXPECT_EQ(files(lora_table(base, plan_lora_of(base, config, names, ""))), files(table));
  names.erase(names.begin());
  names.erase(std::find(names.begin(), names.end(),
                        "base_model.model.model.layers.0.mlp.experts.0.gate_proj.lora_B.weight"));
  EXPECT_EQ(
      error_of([&] { plan_lora_of(base, config, names, "folder"); }),
      "[folder] 2 of 3 experts would be adapted, 'model.layers.0.mlp.experts.0.gate_proj' not; adapt all "
      "experts of a layer, or none");
}

TEST(LoraOfExperts, WhatCannotBeIsRefused) {
  EXPECT_EQ(refusal_of(of_modules({"experts.1.down_proj"})),
            "[lora.target_modules] 1 of 3 experts would be adapted, 'model.layers.0.mlp.experts.0.down_proj' "
            "not; adapt all experts of a layer, or none");
  LoraConfig config = of_modules({"down_proj"});
  config.parameters = {"experts.down_proj"};
  EXPECT_EQ(refusal_of(config),
            "[lora.target_parameters] 'model.layers.0.mlp.experts.down_proj' would be adapted twice: "
            "target_modules names its experts, too");
  config = of_parameters({"experts.down_proj"});
  config.dropout = 0.1;
  EXPECT_EQ(
      refusal_of(config),
      "[lora.dropout] is 0.1, but what experts and routers read has no dropout, as in PEFT, and "
      "'model.layers.0.mlp.experts.down_proj' is adapted; set it to 0, or adapt them by an adapter of their "
      "own");
  config = of_modules({"down_proj"});
  config.rank_pattern = {{"experts\\.1\\..*", 2}};
  EXPECT_EQ(refusal_of(config),
            "[lora.target_modules] 'model.layers.0.mlp.experts.0.down_proj' has rank 8 and "
            "'model.layers.0.mlp.experts.1.down_proj' 2, or other alphas; experts of a layer need the same");
  config = of_modules({"q_proj"});
  config.modules_to_save = {"experts.0.up_proj"};
  EXPECT_EQ(
      refusal_of(config),
      "[lora.modules_to_save] 'model.layers.0.mlp.experts.0.up_proj' is an expert, of which an adapter has "
      "no copy; adapt the experts");
  EXPECT_NE(refusal_of(of_parameters({"experts.gate_up"})).find("'experts.gate_up'"), std::string::npos);
}

}  // namespace
}  // namespace temper
