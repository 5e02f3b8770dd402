// Adapters of experts and routers in files: what the merged model computes, and what files name.
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "base/json/json.h"
#include "models/adapter.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

std::unique_ptr<Model> mixture(const char* type, const char* kernels) {
  TinyModel options{.type = type, .experts = std::string_view(type) == "deepseek_v3"};
  options.ops = {.fallback = kernels};
  return tiny_model(options);
}

Tensor logits_of(const Model& model, const layers::Adapter* adapter) {
  const std::vector<int32_t> ids{3, 9, 1, 40, 22, 5, 17, 8, 30, 2, 11, 45}, lengths{7, 5};
  layers::Decoder::Options options;
  options.adapters = {{adapter, static_cast<int64_t>(ids.size())}};
  const auto input = layers::make_input(ids, lengths);
  Tape tape(false);
  return model.decoder.logits(tape, model.decoder.forward(tape, input, options), adapter).value;
}

void disturb(layers::Adapter& adapter) {
  for (size_t i = 0; i < adapter.parameters().size(); ++i) {
    const auto values = adapter.parameters()[i].value.values<float>();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] += 0.2f * std::sin(static_cast<float>(k * 7 + i * 3 + 1));
  }
}

struct Form {
  const char* name;
  std::vector<std::string> modules, parameters;
};

const std::vector<Form> kForms{
    {"stacked", {}, {"experts.gate_up_proj", "experts.down_proj"}},
    {"one by one", {"gate_proj", "up_proj", "down_proj"}, {}},
    {"of one product", {"q_proj", "up_proj"}, {}},
    {"gate and up", {}, {"experts.gate_up_proj"}},
    {"down", {}, {"experts.down_proj"}},
    {"router", {"mlp.gate", "down_proj"}, {}},
    {"router by its weight", {"all-linear"}, {"mlp.gate.weight", "experts.down_proj"}},
};

TEST(MergedExperts, MergedModelsComputeTheSame) {
  for (const char* type : {"qwen3_moe", "deepseek_v3"})
    for (const char* kernels : {"eager", ""})
      for (const bool stacked : {false, true})
        for (const Form& form : kForms) {
          if (std::string_view(type) == "deepseek_v3" && form.modules.size() == 2 &&
              form.modules[0] == "q_proj")
            continue;  // which it calls otherwise
          SCOPED_TRACE(fmt::format("{}, {}, {} kernels, {}", type, form.name, kernels,
                                   stacked ? "stacked" : "one by one"));
          const auto model = mixture(type, kernels);
          const TemporaryDirectory folder;
          model->decoder.parameters().set_stacked(stacked);
          save_model(*model, folder / "base", "");
          LoraConfig config{.rank = 3, .alpha = 6};
          config.targets = {.names = form.modules};
          if (form.modules.size() == 3) config.rank_pattern = {{"up_proj", 2}};
          config.parameters = form.parameters;
          const auto adapter = new_adapter(*model, config, 1, "");
          const Tensor before = logits_of(*model, nullptr);
          EXPECT_EQ(relative_error(logits_of(*model, adapter.get()), before), 0)
              << "a fresh one changes something";
          disturb(*adapter);
          const Tensor expected = logits_of(*model, adapter.get());
          EXPECT_GE(relative_error(expected, before), 1e-3);

          save_adapter(*adapter, folder / "adapter", folder / "base");
          const auto read = load_adapter(*model, folder / "adapter");
          EXPECT_EQ(relative_error(logits_of(*model, read.get()), expected), 0);
          EXPECT_EQ(read->num_update_elements(), adapter->num_update_elements());
          merge_adapter(folder / "adapter", folder / "base", folder / "merged", int64_t{1} << 30);
          BuildOptions options{.dtype = DType::kF32};
          if (*kernels != 0) options.ops = ops::OpsConfig{.fallback = kernels};
          EXPECT_LE(relative_error(logits_of(*load_model(folder / "merged", options), nullptr), expected),
                    1e-5);
        }
}

// "all-linear" has no experts, though some of its modules have names of theirs.
TEST(MergedExperts, FilesNameNoExpertsThatAreLeftAlone) {
  const auto model = mixture("deepseek_v3", "eager");
  const TemporaryDirectory folder;
  save_adapter(*new_adapter(*model, {.rank = 2}, 1, ""), folder / "adapter", "");
  const Json config = Json::parse_file(folder / "adapter/adapter_config.json");
  ModuleChoice written;
  for (const Json& name : config.at("target_modules").as_array()) written.names.push_back(name.as_string());
  EXPECT_TRUE(written.contains("model.layers.1.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(written.contains("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(written.contains("model.layers.1.mlp.experts.3.up_proj"));
}

}  // namespace
}  // namespace temper::models
