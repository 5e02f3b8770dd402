// Less usual values of adapter_config.json, read and written.
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

Json with_keys(const Json::Object& changes) {
  Json config(Json::Object{
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", Json::Array{"q_proj"}}});
  for (const auto& [key, value] : changes) config.set(key, value);
  return config;
}
AdapterConfig parse_with(const Json::Object& changes) {
  return parse_adapter_config(with_keys(changes), "file");
}
std::string refusal_with(const Json::Object& changes) {
  return error_of([&] { parse_with(changes); });
}

// A weight, or another tensor, of a module.
void add_weight(WeightTable& base, const std::string& name, LoraRole role, const Shape& shape = {4, 2},
                std::optional<int64_t> layer = {}) {
  const std::vector<WeightAxis> axes(static_cast<size_t>(shape.ndim()), "any");
  base.add({.name = name,
            .shape = shape,
            .axes = axes,
            .sources = {{name, shape[0]}},
            .lora = role,
            .layer = layer});
}
// One linear, and an embedding.
WeightTable small_model(const std::string& text = "model.") {
  WeightTable base;
  add_weight(base, text + "layers.0.mlp.up_proj.weight", LoraRole::kLinear);
  add_weight(base, text + "embed_tokens.weight", LoraRole::kEmbedding);
  return base;
}
Json written_by(const WeightTable& base, const LoraConfig& config, const std::string& of = "base") {
  return adapter_config_json(config, plan_lora(base, config, ""), of);
}

TEST(AdapterConfigValues, EmptyOnesOfAnyKeyChangeNothing) {
  for (const Json& value :
       {Json(), Json(false), Json(0), Json(0.0), Json(""), Json(Json::Array{}), Json(Json::Object{})})
    EXPECT_EQ(refusal_with({{"of_next_year", value}}), "") << value.dump();
  for (const Json& value :
       {Json(true), Json(2), Json(0.5), Json("x"), Json(Json::Array{1}), Json(Json::Object{{"a", 1}})})
    EXPECT_EQ(refusal_with({{"of_next_year", value}}),
              fmt::format("[file] 'of_next_year' is {}; Temper has plain LoRA only", value.dump()));
  EXPECT_EQ(refusal_with({{"revision", "main"}, {"task_type", "CAUSAL_LM"}}), "") << "where it came from";
}

TEST(AdapterConfigValues, NullsSayNothing) {
  const AdapterConfig config = parse_with({{"base_model_name_or_path", nullptr},
                                           {"modules_to_save", nullptr},
                                           {"target_parameters", nullptr},
                                           {"target_modules", nullptr},
                                           {"exclude_modules", nullptr},
                                           {"rank_pattern", nullptr},
                                           {"alpha_pattern", nullptr},
                                           {"ensure_weight_tying", nullptr}});
  EXPECT_EQ(config.base_model, "");
  EXPECT_TRUE(config.lora.modules_to_save.empty());
  EXPECT_TRUE(config.lora.parameters.empty());
  EXPECT_TRUE(config.lora.targets.empty());
  EXPECT_TRUE(config.lora.excluded.empty());
  EXPECT_TRUE(config.lora.rank_pattern.empty());
  EXPECT_FALSE(config.ties_weights);
  EXPECT_FALSE(parse_with({{"ensure_weight_tying", false}}).ties_weights);
  EXPECT_TRUE(parse_with({{"ensure_weight_tying", true}}).ties_weights);
}

TEST(AdapterConfigValues, ListsAndNames) {
  EXPECT_EQ(parse_with({{"target_parameters", Json::Array{"mlp.gate.weight"}}}).lora.parameters,
            std::vector<std::string>{"mlp.gate.weight"});
  EXPECT_EQ(parse_with({{"target_modules", "all-linear"}}).named, (ModuleChoice{.names = {kAllLinear}}));
  EXPECT_EQ(parse_with({{"bias", "none"}}).lora.bias, LoraBias::kNone);
  EXPECT_EQ(parse_with({{"bias", "all"}}).lora.bias, LoraBias::kAll);
  for (const char* start : {"eva", "orthogonal", "gaussian"})
    EXPECT_EQ(refusal_with({{"init_lora_weights", start}}), "") << start;
  EXPECT_EQ(refusal_with({{"init_lora_weights", false}}), "");
  expect_has(refusal_with({{"init_lora_weights", "olora"}}),
             "[file] 'init_lora_weights': 'olora' changes the base model's weights");
}

TEST(AdapterConfigValues, OtherKindsAreRefusedByName) {
  EXPECT_EQ(error_of([] { parse_adapter_config(Json::Array{}, "file"); }),
            "[file] found an array, expected an object");
  EXPECT_EQ(error_of([] {
              parse_adapter_config(Json::Object{{"r", 1}, {"lora_alpha", 1}}, "file");
            }),
            "[file] found no 'peft_type'; is this a LoRA adapter of PEFT?");
  EXPECT_EQ(error_of([] {
              parse_adapter_config(Json::Object{{"peft_type", "LORA"}, {"r", 1}}, "file");
            }),
            "[file] found no 'lora_alpha'; is this a LoRA adapter of PEFT?");
  for (const auto& [key, value] : Json::Object{{"r", 1.5},
                                               {"lora_alpha", "8"},
                                               {"lora_dropout", "0"},
                                               {"use_rslora", 1},
                                               {"bias", 0},
                                               {"target_modules", 3},
                                               {"exclude_modules", Json::Array{3}},
                                               {"modules_to_save", "norm"},
                                               {"target_parameters", "gate"},
                                               {"rank_pattern", Json::Array{}},
                                               {"alpha_pattern", Json::Object{{"q_proj", "8"}}},
                                               {"base_model_name_or_path", 3}})
    expect_has(refusal_with({{key, value}}), fmt::format("[file] '{}': expected ", key));
  expect_has(refusal_with({{"layers_to_transform", Json::Array{0, "1"}}}),
             "[file] 'layers_to_transform' is [0, \"1\"], expected a layer's number or a list of them");
}

TEST(AdapterConfigValues, AreWrittenAsUsersOfPeftWriteThem) {
  const WeightTable base = small_model();
  const Json plain = written_by(base, {}, "");
  EXPECT_TRUE(plain.at("base_model_name_or_path").is_null());
  EXPECT_TRUE(plain.at("exclude_modules").is_null());
  EXPECT_TRUE(plain.at("modules_to_save").is_null());
  EXPECT_TRUE(plain.at("target_parameters").is_null());
  EXPECT_EQ(plain.at("bias"), Json("none"));
  EXPECT_EQ(plain.at("task_type"), Json("CAUSAL_LM"));
  for (const auto& [alpha, text] :
       std::vector<std::pair<double, std::string>>{{16, "16"}, {0.5, "0.5"}, {1e15, "1000000000000000.0"}})
    EXPECT_EQ(written_by(base, {.alpha = alpha}).at("lora_alpha").dump(), text);
  const Json full = written_by(base, {.stabilized = true,
                                      .bias = LoraBias::kAll,
                                      .excluded = {.names = {"embed_tokens"}},
                                      .rank_pattern = {{"up_proj", 2}},
                                      .alpha_pattern = {{"up_proj", 0.5}}});
  EXPECT_EQ(full.at("bias"), Json("all"));
  EXPECT_EQ(full.at("use_rslora"), Json(true));
  EXPECT_EQ(full.at("exclude_modules"), Json(Json::Array{"embed_tokens"}));
  EXPECT_EQ(full.at("rank_pattern").dump(), R"({"up_proj": 2})");
  EXPECT_EQ(full.at("alpha_pattern").dump(), R"({"up_proj": 0.5})");
  EXPECT_EQ(written_by(base, {.bias = LoraBias::kLoraOnly}).at("bias"), Json("lora_only"));
  EXPECT_EQ(written_by(base, {.excluded = {.regex = ".*embed.*"}}).at("exclude_modules"), Json(".*embed.*"));
  // What is read again is what was written.
  const AdapterConfig read = parse_adapter_config(full, "file");
  EXPECT_EQ(read.lora.bias, LoraBias::kAll);
  EXPECT_EQ(read.lora.rank_pattern, (std::vector<std::pair<std::string, int64_t>>{{"up_proj", 2}}));
  EXPECT_EQ(read.base_model, "base");
}

// PEFT has no names and expression at once: of what is left out, whole names of targets say it.
TEST(AdapterConfigValues, NamesAndExpressionsAtOnceBecomeWholeNames) {
  const Json both = written_by(
      small_model(),
      {.targets = {.names = {"up_proj"}}, .excluded = {.names = {"embed_tokens"}, .regex = ".*embed.*"}});
  EXPECT_EQ(both.at("target_modules").dump(), R"(["model.layers.0.mlp.up_proj"])");
  EXPECT_TRUE(both.at("exclude_modules").is_null());
}

TEST(AdapterConfigValues, TowersBesideTheTextAreLeftOut) {
  WeightTable base = small_model("model.language_model.");
  add_weight(base, "model.language_model.layers.0.mlp.gate.weight", LoraRole::kRouter);
  const std::string towers = R"(.*(visual|vision_tower|multi_modal_projector)\..*)";
  const LoraPlan plan = plan_lora(base, {}, "");
  const auto excluded = [&](const ModuleChoice& choice) {
    return adapter_config_json({.excluded = choice}, plan, "").at("exclude_modules").as_string();
  };
  EXPECT_EQ(excluded({}), towers);
  EXPECT_EQ(excluded({.names = {"mlp.gate", "embed_tokens"}}),
            R"((.*\.)?mlp\.gate|(.*\.)?embed_tokens|)" + towers);
  EXPECT_EQ(excluded({.regex = ".*embed.*"}), "(.*embed.*)|" + towers);
  EXPECT_EQ(excluded({.regex = towers}), towers) << "as it was read of a file that was written so";
}

TEST(AdapterConfigValues, AHeadThatGivesValuesIsOfAClassifier) {
  WeightTable base = small_model();
  add_weight(base, "score.weight", LoraRole::kNone);
  const Json json = written_by(base, {.modules_to_save = {"score"}});
  EXPECT_EQ(json.at("task_type"), Json("SEQ_CLS"));
  EXPECT_EQ(json.at("modules_to_save").dump(), R"(["score"])");
}

TEST(AdapterConfigValues, BiasesAreNoModulesTrainedWhole) {
  WeightTable base = small_model();
  add_weight(base, "model.layers.0.mlp.up_proj.bias", LoraRole::kNone, {4});
  const Json json = written_by(base, {.bias = LoraBias::kAll});
  EXPECT_EQ(json.at("bias"), Json("all"));
  EXPECT_TRUE(json.at("modules_to_save").is_null());
}

// Two experts, each with its modules in files, or stacked.
WeightTable two_experts() {
  WeightTable base = small_model();
  base.add({.name = "experts.up",
            .shape = {8, 2},
            .axes = {"inner", "hidden"},
            .sources = {{"model.layers.0.mlp.experts.0.up_proj.weight", 4},
                        {"model.layers.0.mlp.experts.1.up_proj.weight", 4}},
            .lora = LoraRole::kExperts,
            .experts = 2,
            .stacked = "model.layers.0.mlp.experts.up",
            .stacked_shape = {2, 4, 2}});
  return base;
}

TEST(AdapterConfigValues, ModulesOfExperts) {
  const WeightTable base = two_experts();
  // "all-linear" leaves experts alone, whose modules have the same short name.
  EXPECT_EQ(written_by(base, {}).at("target_modules").dump(), R"(["model.layers.0.mlp.up_proj"])");
  EXPECT_EQ(written_by(base, {.targets = {.names = {kAllLinear, "experts.0.up_proj", "experts.1.up_proj"}}})
                .at("target_modules")
                .dump(),
            R"(["up_proj"])");
  const LoraConfig stacked{.targets = {.names = {kAllLinear}}, .parameters = {"experts.up"}};
  const Json json = written_by(base, stacked);
  EXPECT_EQ(json.at("target_modules").dump(), R"(["model.layers.0.mlp.up_proj"])");
  EXPECT_EQ(json.at("target_parameters").dump(), R"(["experts.up"])");
  // A module that is named as a parameter is no target_module.
  const Json parameter =
      written_by(base, {.targets = {.names = {kAllLinear}}, .parameters = {"mlp.up_proj.weight"}});
  EXPECT_EQ(parameter.at("target_parameters").dump(), R"(["mlp.up_proj.weight"])");
}

std::string agreement(const WeightTable& base, const Json::Object& changes, const LoraConfig& of_file) {
  const LoraPlan plan = plan_lora(base, of_file, "");
  testing::internal::CaptureStderr();
  const std::string error = error_of([&] { check_agreement(parse_with(changes), plan, "folder"); });
  return error + testing::internal::GetCapturedStderr();
}

TEST(AdapterAgreement, StackedExpertsAreNamedByTheirTensor) {
  const WeightTable base = two_experts();
  const LoraConfig of_file{.targets = {}, .parameters = {"experts.up"}};
  EXPECT_EQ(agreement(base, {{"target_modules", nullptr}, {"target_parameters", Json::Array{"experts.up"}}},
                      of_file),
            "");
  const LoraConfig one_by_one{.targets = {.names = {"experts.0.up_proj", "experts.1.up_proj"}}};
  const Json both = Json::Array{"experts.0.up_proj", "experts.1.up_proj"};
  EXPECT_EQ(agreement(base, {{"target_modules", both}}, one_by_one), "");
  expect_has(agreement(base, {{"target_modules", Json::Array{"experts.0.up_proj"}}}, one_by_one),
             "target_modules does not name model.layers.0.mlp.experts.1.up_proj, but");
}

TEST(AdapterAgreement, AllLinearIsNeitherEmbeddingNorHead) {
  WeightTable base = small_model();
  add_weight(base, "lm_head.weight", LoraRole::kHead);
  for (const char* module : {"embed_tokens", "lm_head"})
    expect_has(
        agreement(base, {{"target_modules", "all-linear"}}, {.targets = {.names = {"up_proj", module}}}),
        fmt::format("target_modules does not name {}{}, but",
                    std::string(module) == "lm_head" ? "" : "model.", module));
  EXPECT_EQ(agreement(base, {{"target_modules", Json::Array{"up_proj", "lm_head"}}},
                      {.targets = {.names = {"up_proj", "lm_head"}}}),
            "");
}

// What names look like says nothing.
TEST(AdapterAgreement, LayersAreThoseThatWeightsAreIn) {
  WeightTable base;
  for (const auto& [name, layer] : std::initializer_list<std::pair<const char*, std::optional<int64_t>>>{
           {"model.first.up_proj", 1}, {"model.layers.1.up_proj", 3}, {"layers.2.up_proj", {}}})
    add_weight(base, std::string(name) + ".weight", LoraRole::kLinear, {4, 2}, layer);
  const auto said = [&](const Json::Array& layers, const std::string& regex) {
    return agreement(base, {{"target_modules", Json::Array{"up_proj"}}, {"layers_to_transform", layers}},
                     {.targets = {.regex = regex}});
  };
  EXPECT_EQ(said({1}, R"(model\.first\.up_proj)"), "");
  expect_has(said({1, 2}, ".*up_proj"),
             "does not name model.layers.1.up_proj, layers.2.up_proj, but the adapter's file has");
  expect_has(
      said({1, 3}, R"(model\.first\.up_proj)"),
      "1 of 2 modules that target_modules names have no tensors in the adapter's file and stay as they "
      "are: model.layers.1.up_proj;");
}

TEST(AdapterAgreement, BiasesThatTheFileHas) {
  WeightTable base = small_model();
  add_weight(base, "model.layers.0.mlp.up_proj.bias", LoraRole::kNone, {4});
  const Json up = Json::Array{"up_proj"};
  const LoraConfig of_file{.bias = LoraBias::kAll, .targets = {.names = {"up_proj"}}};
  EXPECT_EQ(agreement(base, {{"target_modules", up}, {"bias", "all"}}, of_file), "");
  expect_has(
      agreement(base, {{"target_modules", up}}, of_file),
      "the adapter's file replaces model.layers.0.mlp.up_proj.bias of the model, which modules_to_save");
}

TEST(AdapterAgreement, ExpressionsThatAreNone) {
  expect_has(agreement(small_model(), {{"target_modules", "(up_proj"}}, {}),
             "[folder/adapter_config.json] 'target_modules': pattern '(up_proj' cannot be compiled");
}

TEST(AdapterFolders, AreFoundInRuns) {
  const TemporaryDirectory run;
  EXPECT_EQ(find_adapter(run / "none"), run / "none");
  EXPECT_EQ(find_adapter(run.path()), run.path()) << "it has none";
  const auto add_adapter = [&](const std::string& folder) {
    make_directories(folder);
    write_file(join_path(folder, kAdapterConfig), "{}");
    return folder;
  };
  make_directories(run / "adapters/empty");
  const std::string law = add_adapter(run / "adapters/law/adapter");
  EXPECT_EQ(find_adapter(run.path()), law);
  EXPECT_EQ(find_adapter(run / "adapters/law"), law);
  EXPECT_EQ(find_adapter(law), law);
  const std::string art = add_adapter(run / "adapters/art/adapter");
  EXPECT_EQ(error_of([&] { find_adapter(run.path()); }),
            fmt::format("[{}] is a run with several adapters; name one: {}, {}", run.path(), art, law));
  const std::string one = add_adapter(run / "adapter");
  EXPECT_EQ(find_adapter(run.path()), one);
}

TEST(AdapterFolders, AreWrittenAndReplacedAsAWhole) {
  const TemporaryDirectory folder;
  const std::string path = folder / "adapter";
  const WeightTable base = small_model();
  const LoraConfig config{.rank = 1, .targets = {.names = {"up_proj", "embed_tokens"}}};
  const LoraPlan plan = plan_lora(base, config, "");
  const WeightTable table = lora_table(base, plan);
  const Json json = adapter_config_json(config, plan, "base");
  make_directories(path);  // an empty one may be replaced
  for (const float value : {1.f, 2.f}) {
    save_adapter(
        path, table,
        [&](const WeightSpec& spec) {
          return Tensor::from(std::vector<float>(static_cast<size_t>(spec.shape.numel()), value))
              .reshape(spec.shape);
        },
        json);
    EXPECT_EQ(list_directory(path),
              (std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"}));
    const ModelFolder read = ModelFolder::open_adapter(path, base);
    EXPECT_EQ(read_adapter_config(path).lora.rank, 1);
    EXPECT_NO_THROW(check_weights(read, table));
    EXPECT_EQ(read.tensor("base_model.model.model.embed_tokens.lora_embedding_A").shape(), (Shape{1, 4}));
    EXPECT_EQ(read.tensor("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight").values<float>()[0],
              value);
  }
}

TEST(AdapterFolders, OfOtherFiles) {
  const TemporaryDirectory folder;
  write_file(folder / "adapter_model.bin", "");
  expect_has(
      error_of([&] { ModelFolder::open_adapter(folder.path(), {}); }),
      "found adapter_model.bin, expected adapter_model.safetensors; save the adapter again as safetensors");
}

}  // namespace
}  // namespace temper::checkpoints
