#include "checkpoints/adapter_folder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

// A minimal adapter_config.json with other or further keys.
Json config_with(const Json::Object& changes) {
  Json config(Json::Object{{"peft_type", "LORA"},
                           {"r", 4},
                           {"lora_alpha", 8},
                           {"target_modules", Json::Array{"q_proj"}},
                           {"loftq_config", Json::Object{}},
                           {"use_dora", false},
                           {"arrow_config", nullptr}});
  for (const auto& [key, value] : changes) config.set(key, value);
  return config;
}

AdapterConfig read(const Json& config) {
  const TemporaryDirectory folder;
  write_file(folder / kAdapterConfig, config.dump(2));
  return read_adapter_config(folder.path());
}

std::string refusal(const Json::Object& changes) {
  return error_of([&] { read(config_with(changes)); });
}

WeightSpec up_proj(int layer) {
  WeightSpec spec;
  spec.name = fmt::format("layers.{}.up.weight", layer);
  spec.shape = {4, 2};
  spec.axes = {"inner", "hidden"};
  spec.sources = {{fmt::format("model.layers.{}.mlp.up_proj.weight", layer), 4}};
  spec.lora = LoraRole::kLinear;
  spec.layer = layer;
  return spec;
}

TEST(AdapterConfig, ReadsWhatPeftWrites) {
  const AdapterConfig config = read(config_with({{"base_model_name_or_path", "some/base"},
                                                 {"lora_dropout", 0.1},
                                                 {"use_rslora", true},
                                                 {"bias", "lora_only"},
                                                 {"target_modules", ".*_proj"},
                                                 {"exclude_modules", Json::Array{"o_proj"}},
                                                 {"modules_to_save", Json::Array{"norm"}},
                                                 {"rank_pattern", Json::Object{{"up_proj", 2}}},
                                                 {"alpha_pattern", Json::Object{{"up_proj", 0.5}}},
                                                 {"init_lora_weights", "gaussian"}}));
  EXPECT_EQ(config.base_model, "some/base");
  EXPECT_EQ(config.lora.rank, 4);
  EXPECT_EQ(config.lora.alpha, 8);
  EXPECT_EQ(config.lora.dropout, 0.1);
  EXPECT_TRUE(config.lora.stabilized);
  EXPECT_EQ(config.lora.bias, LoraBias::kLoraOnly);
  EXPECT_EQ(config.lora.targets, (ModuleChoice{.regex = ".*_proj"}));
  EXPECT_EQ(config.lora.excluded, (ModuleChoice{.names = {"o_proj"}}));
  EXPECT_EQ(config.lora.modules_to_save, std::vector<std::string>{"norm"});
  EXPECT_EQ(config.lora.rank_of("model.layers.0.mlp.up_proj"), 2);
  EXPECT_EQ(config.lora.scale_of("up_proj"), 0.5 / std::sqrt(2.0));
}

TEST(AdapterConfig, LayersAreThoseOfTheTensors) {
  EXPECT_TRUE(read(config_with({{"layers_to_transform", Json::Array{1, 2}}})).lora.targets.empty());
  EXPECT_TRUE(read(config_with({{"layers_to_transform", 0}})).lora.targets.empty());
  EXPECT_TRUE(read(config_with({{"layers_to_transform", 3}})).lora.targets.empty());
  EXPECT_FALSE(read(config_with({{"layers_to_transform", nullptr}})).lora.targets.empty());
  EXPECT_FALSE(read(config_with({{"layers_to_transform", Json::Array{}}})).lora.targets.empty());
  expect_has(refusal({{"layers_to_transform", "0"}}),
             "'layers_to_transform' is \"0\", expected a layer's number");
}

// PEFT would adapt or copy both as one.
TEST(AdapterConfig, OfAHeadThatIsTheEmbeddingKeepsThemApart) {
  WeightTable tied, untied;
  WeightSpec embedding, head;
  embedding.name = "embedding.weight";
  head.name = "head.weight";
  embedding.shape = head.shape = {8, 4};
  embedding.axes = head.axes = {"vocab", "hidden"};
  embedding.sources = {{"model.embed_tokens.weight", 8}};
  head.sources = {{"lm_head.weight", 8}};
  tied.add(embedding);
  tied.tie(head, embedding.name);
  const auto refused = [](const Json::Object& changes, const WeightTable& base) {
    Json::Object all = changes;
    all.emplace_back("ensure_weight_tying", true);
    return error_of([&] { check_apart(read(config_with(all)), base, "folder"); });
  };
  const Json::Object targets{{"target_modules", Json::Array{"lm_head"}}};
  expect_has(refused(targets, tied),
             "'ensure_weight_tying' is true: what changes lm_head would change the embedding and the head");
  expect_has(refused({{"modules_to_save", Json::Array{"embed_tokens"}}}, tied),
             "'ensure_weight_tying' is true");
  expect_has(refused({{"target_modules", "(q_proj"}}, tied),
             "[folder/adapter_config.json] 'target_modules': pattern '(q_proj' cannot be compiled");
  EXPECT_EQ(refused({}, tied), "");
  EXPECT_EQ(refused(targets, untied), "");
}

TEST(AdapterConfig, WhatNothingMatchesIsOneWarning) {
  WeightTable base;
  base.add(up_proj(0));
  const auto warning = [&](const Json::Object& changes) {
    const AdapterConfig config = read(config_with(changes));
    testing::internal::CaptureStderr();
    check_agreement(config, plan_lora(base, {}, ""), "folder");
    return testing::internal::GetCapturedStderr();
  };
  const Json up = Json::Array{"up_proj"};
  EXPECT_EQ(warning({{"target_modules", up}, {"rank_pattern", Json::Object{{"up_proj", 2}}}}), "");
  EXPECT_EQ(warning({{"target_modules", "all-linear"}}), "");
  EXPECT_EQ(
      warning({{"target_modules", Json::Array{"up_proj", "q_prj"}},
               {"rank_pattern", Json::Object{{".*p_proj", 2}, {"p_proj", 2}}},
               {"alpha_pattern", Json::Object{{"down_proj", 2}}}}),
      "warning: [folder/adapter_config.json] no adapted module matches 'q_prj' (target_modules), 'p_proj' "
      "(rank_pattern), 'down_proj' (alpha_pattern)\n");
}

TEST(AdapterConfig, ModulesWithoutTensorsAreOneWarning) {
  WeightTable base;
  for (int layer = 0; layer < 3; ++layer) base.add(up_proj(layer));
  const auto warning = [&](const Json::Object& changes, const ModuleChoice& in_file) {
    const AdapterConfig config = read(config_with(changes));
    const LoraPlan plan = plan_lora(base, {.targets = in_file}, "");
    testing::internal::CaptureStderr();
    check_agreement(config, plan, "folder");
    return testing::internal::GetCapturedStderr();
  };
  const Json up = Json::Array{"up_proj"};
  const ModuleChoice first{.regex = ".*layers.0.*"};
  EXPECT_EQ(warning({{"target_modules", up}}, {.names = {"up_proj"}}), "");
  EXPECT_EQ(warning({{"target_modules", up}, {"layers_to_transform", Json::Array{0}}}, first), "");
  expect_has(
      warning({{"target_modules", up}, {"layers_to_transform", Json::Array{0, 2}}}, first),
      "1 of 2 modules that target_modules names have no tensors in the adapter's file and stay as they "
      "are: model.layers.2.mlp.up_proj;");
  expect_has(warning({{"target_modules", "all-linear"}}, first), "2 of 3 modules that target_modules names");
  EXPECT_EQ(
      warning({{"target_modules", up}}, first),
      "warning: [folder/adapter_config.json] 2 of 3 modules that target_modules names have no tensors in the "
      "adapter's file and stay as they are: model.layers.1.mlp.up_proj to model.layers.2.mlp.up_proj; was it "
      "trained on a smaller model?\n");
}

TEST(AdapterConfig, TensorsThatItDoesNotNameAreRefused) {
  WeightTable base;
  for (int layer = 0; layer < 3; ++layer) base.add(up_proj(layer));
  const LoraPlan all = plan_lora(base, {}, "");
  const auto refused = [&](const Json::Object& changes) {
    return error_of([&] { check_named(read(config_with(changes)), all, "folder"); });
  };
  const Json up = Json::Array{"up_proj"};
  EXPECT_EQ(refused({{"target_modules", up}}), "");
  EXPECT_EQ(refused({{"target_modules", "all-linear"}}), "");
  EXPECT_EQ(refused({{"target_modules", nullptr}}), "");  // the file alone says it
  EXPECT_EQ(refused({{"target_modules", nullptr}, {"target_parameters", Json::Array{"up_proj.weight"}}}), "");
  EXPECT_EQ(
      refused({}),
      "[folder/adapter_config.json] target_modules does not name model.layers.0.mlp.up_proj, "
      "model.layers.1.mlp.up_proj, model.layers.2.mlp.up_proj, but the adapter's file has their tensors; add "
      "what is missing to adapter_config.json, or save the adapter again");
  expect_has(refused({{"target_modules", Json::Array{"layers.0.mlp.up_proj", "layers.2.mlp.up_proj"}}}),
             "does not name model.layers.1.mlp.up_proj, but");
  expect_has(refused({{"target_modules", ".*[01].mlp.up_proj"}}),
             "does not name model.layers.2.mlp.up_proj, but");
  expect_has(refused({{"target_modules", up}, {"exclude_modules", Json::Array{"layers.1.mlp.up_proj"}}}),
             "does not name model.layers.1.mlp.up_proj, but");
  expect_has(
      refused({{"target_modules", up}, {"layers_to_transform", Json::Array{0, 1}}}),
      "does not name model.layers.2.mlp.up_proj, but the adapter's file has their tensors; add what is "
      "missing "
      "to adapter_config.json (see layers_to_transform, too)");
}

TEST(AdapterConfig, WholeModulesOfTheFileOrOfTheKeyAloneAreWarnings) {
  WeightTable base;
  for (int layer = 0; layer < 3; ++layer) base.add(up_proj(layer));
  const auto warning = [&](const Json::Object& changes, const std::vector<std::string>& in_file) {
    const LoraPlan plan = plan_lora(base, {.modules_to_save = in_file}, "");
    Json::Object all{{"target_modules", "all-linear"}};
    all.insert(all.end(), changes.begin(), changes.end());
    testing::internal::CaptureStderr();
    check_agreement(read(config_with(all)), plan, "folder");
    return testing::internal::GetCapturedStderr();
  };
  const std::string whole = "layers.1.mlp.up_proj";
  const Json named = Json::Array{whole};
  EXPECT_EQ(warning({{"modules_to_save", named}}, {whole}), "");
  expect_has(warning({}, {whole}),
             "the adapter's file replaces model.layers.1.mlp.up_proj.weight of the model, which "
             "modules_to_save does "
             "not name");
  expect_has(warning({{"modules_to_save", Json::Array{whole, "layers.2.mlp.up_proj"}}}, {whole}),
             "modules_to_save names model.layers.2.mlp.up_proj, but the adapter's file has no such weights: "
             "they stay "
             "the model's");
}

TEST(AdapterConfig, RefusesWhatChangesTheResultByName) {
  for (const char* type : {"IA3", "VERA", "LOHA", "OFT", "PROMPT_TUNING"})  // which have no r, most of them
    expect_has(error_of([&] {
                 read(Json::Object{{"peft_type", type}});
               }),
               fmt::format("'peft_type' is \"{}\"; Temper has LORA only", type));
  expect_has(refusal({{"use_dora", true}}), "'use_dora' is true; Temper has plain LoRA only");
  expect_has(refusal({{"trainable_token_indices", Json::Array{1}}}), "'trainable_token_indices' is [1]");
  expect_has(refusal({{"fan_in_fan_out", true}}), "'fan_in_fan_out' is true");
  expect_has(refusal({{"of_next_year", 3}}), "'of_next_year' is 3");
  expect_has(refusal({{"init_lora_weights", "pissa_niter_4"}}),
             "'pissa_niter_4' changes the base model's weights");
  expect_has(refusal({{"bias", "some"}}), "'bias': expected none, all or lora_only, found 'some'");
  expect_has(refusal({{"r", 0}}), "'r' is 0, expected at least 1");
  expect_has(refusal({{"rank_pattern", Json::Object{{"(q_proj", 2}}}}),
             "adapter_config.json] 'rank_pattern': pattern '(q_proj' cannot be compiled: missing closing");
  expect_has(refusal({{"alpha_pattern", Json::Object{{"(q_proj", 2}}}}),
             "'alpha_pattern': pattern '(q_proj'");
  expect_has(refusal({{"r", "four"}}), "'r': expected an integer, found a string");
  expect_has(error_of([] { read(Json::Object{{"peft_type", "LORA"}}); }), "found no 'r'");
  const TemporaryDirectory empty;
  expect_has(error_of([&] { read_adapter_config(empty.path()); }), "found no adapter_config.json");
  expect_has(error_of([&] { ModelFolder::open_adapter(empty.path(), {}); }),
             "found no adapter_model.safetensors");
}

TEST(AdapterConfig, IsWrittenSoThatPeftMeansTheSame) {
  WeightTable base;
  base.add(up_proj(0));
  base.add({.name = "embedding.weight",
            .shape = {4, 2},
            .axes = {"vocab", "hidden"},
            .sources = {{"model.embed_tokens.weight", 4}},
            .lora = LoraRole::kEmbedding});
  const auto targets = [&](const LoraConfig& config) {
    return adapter_config_json(config, plan_lora(base, config, ""), "base").at("target_modules").dump();
  };
  EXPECT_EQ(targets({}), R"(["up_proj"])");  // of all-linear
  EXPECT_EQ(targets({.targets = {.names = {kAllLinear, "embed_tokens"}}}), R"(["embed_tokens", "up_proj"])");
  EXPECT_EQ(targets({.targets = {.names = {kAllLinear}, .regex = ".*embed.*"}}),
            R"(["model.embed_tokens", "model.layers.0.mlp.up_proj"])");
  EXPECT_EQ(targets({.targets = {.names = {"mlp.up_proj"}}}), R"(["mlp.up_proj"])");
  EXPECT_EQ(targets({.targets = {.regex = ".*up_proj"}}), R"(".*up_proj")");
  EXPECT_EQ(adapter_config_json({.targets = {}}, plan_lora(base, {}, ""), "").at("target_modules").dump(),
            R"(["model.layers.0.mlp.up_proj"])");  // read from a file that adapts some layers
  // PEFT takes names or an expression.
  EXPECT_EQ(targets({.targets = {.names = {"up_proj"}, .regex = ".*up_proj"}}),
            R"(["model.layers.0.mlp.up_proj"])");
}

// PEFT takes each module whose name ends so, with or without a dot before it.
TEST(AdapterConfig, NamesModulesTrainedWholeSoThatPeftMeansNoOthers) {
  WeightTable base;
  const auto add = [&](const std::string& module, LoraRole role) {
    base.add({.name = module,
              .shape = {4, 2},
              .axes = {"inner", "hidden"},
              .sources = {{module + ".weight", 4}},
              .lora = role});
  };
  add("model.layers.0.self_attn.q_proj", LoraRole::kLinear);
  add("model.layers.0.self_attn.q_norm", LoraRole::kNone);
  add("model.layers.0.input_layernorm", LoraRole::kNone);
  add("model.norm", LoraRole::kNone);
  const auto whole = [&](std::vector<std::string> names) {
    const LoraConfig config{.modules_to_save = std::move(names)};
    const LoraPlan plan = plan_lora(base, config, "");
    const std::string written = adapter_config_json(config, plan, "").at("modules_to_save").dump();
    // Read again with its tensors, and written again.
    std::vector<std::string> files{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"};
    for (const LoraSaved& saved : plan.saved) files.push_back(saved.file);
    const LoraPlan again = plan_lora_of(base, config, files, "adapter");
    EXPECT_EQ(adapter_config_json(config, again, "").at("modules_to_save").dump(), written);
    return written;
  };
  EXPECT_EQ(whole({"norm"}), R"(["model.norm"])");
  EXPECT_EQ(whole({"input_layernorm", "norm"}), R"(["input_layernorm", "model.norm"])");
  EXPECT_EQ(whole({"norm", "q_norm", "input_layernorm"}), R"(["norm", "q_norm", "input_layernorm"])");
  EXPECT_EQ(whole({}), "null");
}

TEST(AdapterFolder, OtherFoldersAreLeftAlone) {
  const TemporaryDirectory folder;
  write_file(folder / "notes.txt", "mine");
  expect_has(error_of([&] { save_adapter(folder.path(), {}, {}, Json::Object{}); }),
             "is a folder without adapter_config.json");
}

}  // namespace
}  // namespace temper::checkpoints
