#include "weights/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/errors.h"

namespace temper {
namespace {

// Two layers of a model with fused projections, a bias and a head of its own.
WeightTable model_table() {
  WeightTable table;
  std::optional<int64_t> layer;
  const auto add = [&](std::string name, Shape shape, std::vector<WeightSource> sources, LoraRole role) {
    const std::vector<WeightAxis> axes(static_cast<size_t>(shape.ndim()), "hidden");
    table.add({.name = std::move(name),
               .shape = shape,
               .axes = axes,
               .sources = std::move(sources),
               .lora = role,
               .layer = layer});
  };
  add("embedding.weight", {10, 4}, {{"model.embed_tokens.weight", 10}}, LoraRole::kEmbedding);
  for (int i = 0; i < 2; ++i) {
    const std::string to = fmt::format("layers.{}.", i), from = fmt::format("model.layers.{}.", i);
    layer = i;
    add(to + "norm.weight", {4}, {{from + "input_layernorm.weight", 4}}, LoraRole::kNone);
    const std::string attention = from + "self_attn.";
    add(to + "attention.qkv.weight", {8, 4},
        {{attention + "q_proj.weight", 4},
         {attention + "k_proj.weight", 2},
         {attention + "v_proj.weight", 2}},
        LoraRole::kLinear);
    add(to + "attention.qkv.bias", {8},
        {{attention + "q_proj.bias", 4}, {attention + "k_proj.bias", 2}, {attention + "v_proj.bias", 2}},
        LoraRole::kNone);
    add(to + "mlp.down.weight", {4, 6}, {{from + "mlp.down_proj.weight", 4}}, LoraRole::kLinear);
  }
  layer.reset();
  add("head.weight", {10, 4}, {{"lm_head.weight", 10}}, LoraRole::kHead);
  return table;
}

std::vector<std::string> modules(const LoraPlan& plan) {
  std::vector<std::string> names;
  for (const LoraTarget& target : plan.targets) names.push_back(target.module);
  return names;
}

std::string plan_error(const LoraConfig& config) {
  return error_of([&] { plan_lora(model_table(), config, "lora."); });
}

TEST(Lora, AllLinearLeavesEmbeddingAndHeadOut) {
  const WeightTable base = model_table();
  const LoraPlan plan = plan_lora(base, {}, "");
  EXPECT_EQ(plan.targets.size(), 8u);
  EXPECT_EQ(modules(plan)[2], "model.layers.0.self_attn.v_proj");
  EXPECT_EQ(plan.targets[2].row, 6);
  EXPECT_EQ(plan.targets[2].rows, 2);
  EXPECT_TRUE(plan.saved.empty());
}

TEST(Lora, ChoosesByNameAndExpression) {
  const WeightTable base = model_table();
  using Names = std::vector<std::string>;
  LoraConfig config;
  config.targets = {.names = {"v_proj", "model.layers.1.mlp.down_proj"}};
  config.excluded = {.regex = R"(.*\.0\..*)"};
  EXPECT_EQ(modules(plan_lora(base, config, "")),
            (Names{"model.layers.1.self_attn.v_proj", "model.layers.1.mlp.down_proj"}));
  config = {.targets = {.regex = R"(.*\.1\.self_attn\.(q|k)_proj|lm_head|.*embed.*)"}};
  EXPECT_EQ(modules(plan_lora(base, config, "")),
            (Names{"model.embed_tokens", "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj",
                   "lm_head"}));
  config = {.targets = {.names = {"embed_tokens", kAllLinear}}};
  EXPECT_EQ(modules(plan_lora(base, config, "")).size(), 9u);
  config = {.targets = {.names = {kAllLinear}, .regex = "lm_head"}, .excluded = {.names = {"v_proj"}}};
  EXPECT_EQ(modules(plan_lora(base, config, "")).size(), 7u);
  config = {.targets = {.names = {"v_proj", "lm_head"}}, .modules_to_save = {"lm_head"}};
  EXPECT_EQ(modules(plan_lora(base, config, "")).size(), 2u);  // trained whole, not adapted
}

TEST(Lora, PatternsOfRanksAndAlphas) {
  LoraConfig config{.rank = 4, .alpha = 8};
  config.rank_pattern = {{"down_proj", 2}, {".*down_proj", 9}, {R"(^model\.layers\.1\..*v_proj)", 16}};
  config.alpha_pattern = {{"v_proj", 32}};
  const WeightTable base = model_table();
  const LoraPlan plan = plan_lora(base, config, "");
  EXPECT_EQ(plan.targets[0].rank, 4);
  EXPECT_EQ(plan.targets[0].scale, 2);
  EXPECT_EQ(plan.targets[2].scale, 8);
  EXPECT_EQ(plan.targets[3].rank, 2);  // the first that matches
  EXPECT_EQ(plan.targets[3].scale, 4);
  EXPECT_EQ(plan.targets[6].rank, 16);
  EXPECT_EQ(plan.targets[6].scale, 2);
  config.stabilized = true;
  EXPECT_EQ(plan_lora(base, config, "").targets[3].scale, 8 / std::sqrt(2.0));
}

TEST(Lora, TableFusesWhatSharesAParameter) {
  const WeightTable base = model_table();
  LoraConfig config{.rank = 3, .targets = {.names = {"q_proj", "v_proj", "embed_tokens"}}};
  config.rank_pattern = {{"v_proj", 2}};
  const WeightTable table = lora_table(base, plan_lora(base, config, ""));
  const WeightSpec* a = table.find("layers.1.attention.qkv.lora_A");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Shape{5, 4}));
  EXPECT_EQ(a->sources[1].name, "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight");
  EXPECT_EQ(table.find("layers.1.attention.qkv.lora_B.q_proj")->shape, (Shape{4, 3}));
  EXPECT_EQ(table.find("layers.1.attention.qkv.lora_B.v_proj")->shape, (Shape{2, 2}));
  EXPECT_EQ(table.find("layers.1.attention.qkv.lora_B.k_proj"), nullptr);
  const WeightSpec* embedding = table.find("embedding.lora_A");
  EXPECT_EQ(embedding->shape, (Shape{10, 3}));
  EXPECT_TRUE(embedding->transposed);
  EXPECT_EQ(table.find("embedding.lora_B.embed_tokens")->shape, (Shape{4, 3}));
}

TEST(Lora, BiasesAndModulesTrainedWhole) {
  const WeightTable base = model_table();
  LoraConfig config{.bias = LoraBias::kAll, .targets = {.names = {"q_proj"}}};
  EXPECT_EQ(plan_lora(base, config, "").saved.size(), 6u);
  config.bias = LoraBias::kLoraOnly;
  config.modules_to_save = {"lm_head", "input_layernorm"};
  const LoraPlan plan = plan_lora(base, config, "");
  ASSERT_EQ(plan.saved.size(), 5u);
  EXPECT_EQ(plan.saved[1].source, "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(plan.saved[1].file, "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias");
  EXPECT_EQ(plan.saved[4].file, "base_model.model.lm_head.weight");
  const WeightTable table = lora_table(base, plan);
  EXPECT_EQ(table.find("saved.model.layers.0.self_attn.q_proj.bias")->shape, (Shape{4}));
  EXPECT_EQ(table.find("saved.lm_head.weight")->shape, (Shape{10, 4}));
}

TEST(Lora, WhatItAddsIsInTheLayerOfTheWeight) {
  const WeightTable base = model_table();
  LoraConfig config{.targets = {.names = {"q_proj", "embed_tokens"}}, .modules_to_save = {"input_layernorm"}};
  const LoraPlan plan = plan_lora(base, config, "");
  const WeightTable table = lora_table(base, plan);
  for (const char* name : {"layers.1.attention.qkv.lora_A", "layers.1.attention.qkv.lora_B.q_proj",
                           "saved.model.layers.1.input_layernorm.weight"})
    EXPECT_EQ(table.find(name)->layer, 1) << name;
  for (const char* name : {"embedding.lora_A", "embedding.lora_B.embed_tokens"})
    EXPECT_EQ(table.find(name)->layer, std::nullopt) << name;
  std::vector<std::optional<int64_t>> layers;
  for (const LoraModule& module : plan.modules)
    if (module.name.ends_with("q_proj") || module.name == "lm_head") layers.push_back(module.layer);
  EXPECT_EQ(layers, (std::vector<std::optional<int64_t>>{0, 1, std::nullopt}));
}

// What is written is read again as the same plan.
TEST(Lora, FilesSayWhatIsAdapted) {
  const WeightTable base = model_table();
  LoraConfig config{.bias = LoraBias::kLoraOnly, .targets = {.names = {"v_proj", "embed_tokens"}}};
  config.modules_to_save = {"lm_head"};
  const LoraPlan plan = plan_lora(base, config, "");
  std::vector<std::string> names{"base_model.model.model.embed_tokens.base_layer.weight"};
  const WeightTable table = lora_table(base, plan);
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : spec.sources) names.push_back(source.name);
  const LoraPlan again = plan_lora_of(base, config, names, "adapter");
  EXPECT_EQ(modules(again), modules(plan));
  ASSERT_EQ(again.saved.size(), plan.saved.size());
  for (size_t i = 0; i < plan.saved.size(); ++i) EXPECT_EQ(again.saved[i].source, plan.saved[i].source);
  ASSERT_EQ(again.unchanged.size(), 1u);
  EXPECT_EQ(again.unchanged[0].source, "model.embed_tokens.weight");
  names.push_back("base_model.model.model.layers.2.self_attn.v_proj.lora_A.weight");
  expect_has(error_of([&] { plan_lora_of(base, config, names, "adapter"); }),
             "[adapter] 1 tensors belong to no module of this model, or to one that cannot be adapted: "
             "base_model.model.model.layers.2.self_attn.v_proj.lora_A.weight");
  expect_has(error_of([&] { plan_lora_of(base, config, {}, "adapter"); }),
             "holds no tensor of a LoRA adapter");
}

// The head that is the embedding: a target by itself, and a parameter of no module.
WeightTable tied_table() {
  WeightTable table;
  const auto spec = [](const char* name, const char* source, LoraRole lora) {
    return WeightSpec{
        .name = name, .shape = {10, 4}, .axes = {"vocab", "hidden"}, .sources = {{source, 10}}, .lora = lora};
  };
  table.add(spec("embedding.weight", "model.embed_tokens.weight", LoraRole::kEmbedding));
  table.tie(spec("head.weight", "lm_head.weight", LoraRole::kHead), "embedding.weight");
  return table;
}

TEST(Lora, ATiedHeadIsATargetByItself) {
  const WeightTable base = tied_table();
  EXPECT_EQ(base.specs().size(), 1u);
  EXPECT_EQ(base.find("head.weight"), nullptr);
  EXPECT_EQ(base.find_source("lm_head.weight").spec, nullptr);
  EXPECT_EQ(base.ignored().at("lm_head.weight"), "tied to model.embed_tokens.weight");
  const LoraConfig config{.rank = 2, .targets = {.names = {"embed_tokens", "lm_head"}}};
  const LoraPlan plan = plan_lora(base, config, "");
  EXPECT_EQ(modules(plan), (std::vector<std::string>{"model.embed_tokens", "lm_head"}));
  const WeightTable table = lora_table(base, plan);
  EXPECT_EQ(table.find("head.lora_A")->shape, (Shape{2, 4}));
  EXPECT_EQ(table.find("head.lora_B.lm_head")->shape, (Shape{10, 2}));
  std::vector<std::string> names{"base_model.model.lm_head.base_layer.weight"};
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : spec.sources) names.push_back(source.name);
  const LoraPlan again = plan_lora_of(base, config, names, "adapter");
  EXPECT_EQ(modules(again), modules(plan));
  EXPECT_EQ(again.unchanged.size(), 1u);
  EXPECT_EQ(
      plan_lora(base, {.targets = {.regex = ".*"}, .excluded = {.names = {"lm_head"}}}, "").targets.size(),
      1u);
}

// PEFT's copy of a tied head is the head's alone; the embedding stays.
TEST(Lora, ATiedHeadIsTrainedWholeByItself) {
  const WeightTable base = tied_table();
  const LoraConfig config{.targets = {.names = {"embed_tokens"}}, .modules_to_save = {"lm_head"}};
  const LoraPlan plan = plan_lora(base, config, "");
  ASSERT_EQ(plan.saved.size(), 1u);
  EXPECT_EQ(plan.saved[0].source, "lm_head.weight");
  EXPECT_EQ(plan.saved[0].file, "base_model.model.lm_head.weight");
  const WeightTable table = lora_table(base, plan);
  EXPECT_EQ(table.find("saved.lm_head.weight")->shape, (Shape{10, 4}));
  std::vector<std::string> names;
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : spec.sources) names.push_back(source.name);
  EXPECT_EQ(plan_lora_of(base, config, names, "adapter").saved.size(), 1u);
  // A file whose configuration does not ask for it.
  expect_has(error_of([&] { plan_lora_of(base, {}, names, "adapter"); }), "base_model.model.lm_head.weight");
}

// With bias: all, PEFT writes the biases of a module that it trains whole three times.
class RepeatedBiases : public testing::Test {
 protected:
  LoraPlan plan(std::vector<std::string> biases) const {
    std::vector<std::string> names{"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
                                   "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight",
                                   k_proj_ + "weight"};
    for (const std::string& bias : biases) names.push_back(k_proj_ + bias);
    return plan_lora_of(base_, {.bias = LoraBias::kAll, .modules_to_save = {"k_proj"}}, names, "adapter");
  }
  const WeightTable base_ = model_table();
  const std::string k_proj_ = "base_model.model.model.layers.0.self_attn.k_proj.";
};

TEST_F(RepeatedBiases, AreReadOnceFromPeftsFile) {
  const LoraPlan found = plan({"bias", "modules_to_save.bias", "original_module.bias"});
  ASSERT_EQ(found.saved.size(), 2u);
  EXPECT_EQ(found.saved[1].source, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(found.saved[1].file, k_proj_ + "bias");
  EXPECT_EQ(found.repeated.size(), 2u);
  EXPECT_TRUE(lora_table(base_, found).ignored().contains(k_proj_ + "original_module.bias"));
}

// What was trained has one of two names.
TEST_F(RepeatedBiases, AreReadByTheirOtherName) {
  const LoraPlan found = plan({"modules_to_save.bias", "original_module.bias"});
  ASSERT_EQ(found.saved.size(), 2u);
  EXPECT_EQ(found.saved[1].source, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(found.saved[1].file, k_proj_ + "modules_to_save.bias");
  EXPECT_EQ(found.repeated, std::vector<std::string>{k_proj_ + "original_module.bias"});
  EXPECT_NE(lora_table(base_, found).find("saved.model.layers.0.self_attn.k_proj.bias"), nullptr);
}

TEST_F(RepeatedBiases, OfModulesThatTheModelLacksAreRefused) {
  expect_has(error_of([&] {
               plan_lora_of(base_, {},
                            {"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
                             "base_model.model.model.layers.7.x.modules_to_save.bias"},
                            "adapter");
             }),
             "base_model.model.model.layers.7.x.modules_to_save.bias");
}

TEST(Lora, RanksBeyondTheMatricesAreRefused) {
  EXPECT_EQ(plan_error({.rank = 16}), "");
  EXPECT_EQ(
      plan_error({.rank = 800'000'000}),
      "[lora.rank] is 800000000 for 'model.layers.0.self_attn.q_proj', larger than the matrices that are "
      "adapted: a rank of 4 is all that they have");
  expect_has(plan_error({.rank_pattern = {{"down_proj", 17}}}), "is 17 for 'model.layers.0.mlp.down_proj'");
}

TEST(Lora, BadConfigurations) {
  expect_has(plan_error({.rank = 0}), "[lora.rank] is 0, expected at least 1");
  expect_has(plan_error({.alpha = 0}), "[lora.alpha] is 0, expected a finite number above 0");
  for (const double alpha : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    expect_has(plan_error({.alpha = alpha}), "expected a finite number above 0");
    expect_has(plan_error({.alpha_pattern = {{"q_proj", alpha}}}), "[lora.patterns] 'q_proj': alpha is");
  }
  expect_has(plan_error({.dropout = 1}), "[lora.dropout] is 1");
  expect_has(
      plan_error({.targets = {.names = {"q_prj"}}}),
      "[lora.target_modules] no module is called 'q_prj'; did you mean 'q_proj'?; there are down_proj, "
      "embed_tokens, k_proj, lm_head, q_proj, v_proj");
  expect_has(
      plan_error({.targets = {.regex = "(q_proj"}}),
      "[lora.target_regex]: pattern '(q_proj' cannot be compiled: missing closing parenthesis (at byte 7)");
  expect_has(plan_error({.targets = {.regex = "q)|(k"}}), "[lora.target_regex]: pattern 'q)|(k' cannot be");
  expect_has(plan_error({.targets = {.regex = "q_proj"}}),
             "[lora.target_regex] the expression 'q_proj' matches");
  expect_has(plan_error({.targets = {.regex = R"((\w+)"}}), R"(pattern '(\w+' cannot be compiled: missing)");
  expect_has(plan_error({.excluded = {.regex = "["}}), "[lora.exclude_regex]: pattern '['");
  expect_has(plan_error({.rank_pattern = {{"(q_proj", 4}}}), "[lora.patterns]: pattern '(q_proj' cannot be");
  expect_has(plan_error({.alpha_pattern = {{"*", 4}}}), "[lora.patterns]: pattern '*' cannot be");
  expect_has(plan_error({.targets = {.names = {"input_layernorm"}}}),
             "'model.layers.0.input_layernorm' cannot be adapted");
  expect_has(plan_error({.excluded = {.names = {"o_proj"}}}), "[lora.exclude_modules] no module is called");
  expect_has(plan_error({.targets = {.names = {"q_proj"}}, .excluded = {.names = {"q_proj"}}}),
             "leave no module to adapt");
  expect_has(plan_error({.excluded = {.names = {kAllLinear}}}),
             "[lora.exclude_modules] 'all-linear' is not a module's name: it means every linear in "
             "target_modules only; name the modules");
  expect_has(plan_error({.modules_to_save = {kAllLinear}}), "[lora.modules_to_save] 'all-linear' is not");
  expect_has(plan_error({.modules_to_save = {"head"}}), "[lora.modules_to_save] no module is called 'head'");
  expect_has(plan_error({.rank_pattern = {{"o_proj", 4}}}),
             "[lora.patterns] the pattern 'o_proj' matches no");
  expect_has(plan_error({.rank_pattern = {{"q_proj", 0}}}),
             "[lora.patterns] 'q_proj': rank is 0, expected a finite number above 0");
  expect_has(plan_error({.alpha_pattern = {{"lm_head", 4}}}), "[lora.patterns] the pattern 'lm_head'");
  expect_has(plan_error({.rank_pattern = {{"q_proj", 8}, {"v_proj", 2}, {"q_proj", 4}}}),
             "[lora.patterns] 'q_proj' has two ranks, 8 and 4; the first alone would count");
  expect_has(plan_error({.alpha_pattern = {{"q_proj", 8}, {"q_proj", 8}}}), "'q_proj' has two alphas, 8 and");
}

}  // namespace
}  // namespace temper
