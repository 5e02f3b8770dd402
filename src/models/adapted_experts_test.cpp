#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "checkpoints/files/safetensors.h"
#include "models/adapter.h"
#include "tests/support/errors.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using Names = std::vector<std::string>;

// Whose the tokens are, five for each.
Tensor logits_of(const Model& model, const std::vector<const layers::Adapter*>& owners) {
  Tape tape(false);
  layers::Decoder::Options options;
  std::vector<int32_t> ids, lengths;
  for (size_t i = 0; i < owners.size(); ++i) {
    options.adapters.push_back({owners[i], 5});
    for (const int32_t id : {3, 1, 4, 1, 5}) ids.push_back(id + static_cast<int32_t>(i));
    lengths.push_back(5);
  }
  return model.decoder.logits(tape, model.decoder.forward(tape, layers::make_input(ids, lengths), options))
      .value;
}

const Names kStacked{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};

LoraConfig stacked(Names parameters) {
  return {.rank = 2, .alpha = 6, .targets = {}, .parameters = std::move(parameters)};
}
LoraConfig one_by_one(Names modules) {
  LoraConfig config{.rank = 2, .alpha = 6, .targets = {.names = std::move(modules)}};
  if (config.targets.names.size() > 1) config.rank_pattern = {{"up_proj", 3}};
  return config;
}

// B of a new adapter is zero: others change what the model computes.
std::unique_ptr<layers::Adapter> trained(const Model& model, const LoraConfig& config, int seed) {
  auto adapter = new_adapter(model, config, 1, "");
  for (size_t i = 0; i < adapter->parameters().size(); ++i) {
    const auto values = adapter->parameters()[i].value.values<float>();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] += 0.02f * (static_cast<float>((k * 7 + i + static_cast<size_t>(seed)) % 11) - 5);
  }
  return adapter;
}

std::vector<LoraConfig> forms() {
  return {stacked(kStacked),
          stacked({"experts.down_proj"}),
          stacked({"experts.gate_up_proj"}),
          one_by_one({"gate_proj", "up_proj", "down_proj"}),
          one_by_one({"up_proj"}),
          stacked({"mlp.gate.weight", "experts.down_proj"}),
          one_by_one({"mlp.gate", "up_proj"})};
}

// A of an expert is PEFT's, uniform in ±1/sqrt(in), and B is zero.
TEST(AdaptedExperts, StartAsTheModelIs) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  for (const LoraConfig& config : forms()) {
    const auto adapter = new_adapter(*model, config, 1, "");
    EXPECT_EQ(relative_error(logits_of(*model, {adapter.get()}), logits_of(*model, {nullptr})), 0);
    const layers::ParameterStore& parameters = adapter->parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters.spec(i).name.ends_with("lora_A")) {
        const Tensor& a = parameters[i].value;
        float largest = 0;
        for (const float value : a.values<float>()) largest = std::max(largest, std::abs(value));
        const float bound = 1 / std::sqrt(static_cast<float>(a.dim(1)));
        EXPECT_LE(largest, bound);
        EXPECT_GT(largest, 0.8f * bound);
      }
  }
}

TEST(AdaptedExperts, OfSeveralAdaptersInOnePassAreEachAlone) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const auto a = trained(*model, stacked(kStacked), 0), b = trained(*model, one_by_one({"up_proj"}), 3),
             c = trained(*model, {.rank = 2, .targets = {.names = {"q_proj"}}}, 5);
  const std::vector<const layers::Adapter*> owners{a.get(), nullptr, b.get(), c.get(), a.get()};
  const Tensor all = logits_of(*model, owners);
  for (size_t i = 0; i < owners.size(); ++i) {
    // The same tokens, all of this adapter.
    const Tensor alone = logits_of(*model, std::vector<const layers::Adapter*>(owners.size(), owners[i]));
    const auto own = [&](const Tensor& of) { return of.narrow(0, static_cast<int64_t>(i) * 5, 5); };
    EXPECT_LE(relative_error(own(all), own(alone)), 1e-5) << i;
  }
}

// A frozen base in 8 bits is one of the values that its codes mean.
TEST(AdaptedExperts, OfABaseIn8BitsAreThoseOfItsRoundedValues) {
  const auto codes = tiny_model({.type = "qwen3_moe", .base_dtype = primitives::FrozenFormat::kFloat8}),
             rounded = tiny_model({.type = "qwen3_moe"});
  const layers::ParameterStore& from = codes->decoder.parameters();
  for (size_t i = 0; i < from.size(); ++i)
    rounded->decoder.parameters()[i].value.copy_from(from.value(from.spec(i).name));
  for (const LoraConfig& config : forms()) {
    const auto a = trained(*codes, config, 0), b = trained(*rounded, config, 0);
    EXPECT_EQ(relative_error(logits_of(*codes, {a.get()}), logits_of(*rounded, {b.get()})), 0);
  }
}

TEST(AdaptedExperts, AllLinearLeavesThemOut) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const auto adapter = new_adapter(*model, {.rank = 2}, 1, "");
  for (const LoraTarget& target : adapter->plan().targets)
    EXPECT_EQ(target.module.find("mlp"), std::string::npos) << target.module;
}

TEST(AdaptedExperts, BadConfigurationsAreOneErrorEach) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const auto error = [&](const LoraConfig& config) {
    return error_of([&] { new_adapter(*model, config, 1, "adapters.a."); });
  };
  expect_has(error(stacked({"mlp.experts.up_gate_proj"})), "[adapters.a.target_parameters]");
  expect_has(error_of([&] { new_adapter(*tiny_model(), stacked(kStacked), 1, "adapters.a."); }),
             "[adapters.a.target_parameters]");
  LoraConfig dropped = stacked(kStacked);
  dropped.dropout = 0.1;
  expect_has(error(dropped), "[adapters.a.dropout] is 0.1, but what experts and routers read has no dropout");
  expect_has(error(one_by_one({"experts.3.up_proj"})),
             "[adapters.a.target_modules] 1 of 6 experts would be adapted, "
             "'model.layers.0.mlp.experts.0.up_proj' not; adapt all experts of a layer, or none");
  LoraConfig unlike = one_by_one({"up_proj"});
  unlike.rank_pattern = {{"experts.2.up_proj", 5}};
  expect_has(error(unlike), "'model.layers.0.mlp.experts.2.up_proj' 5, or other alphas; experts of a layer");
  LoraConfig twice = stacked(kStacked);
  twice.targets.names = {"up_proj"};
  expect_has(error(twice), "'model.layers.0.mlp.experts.gate_up_proj' would be adapted twice");
}

TEST(AdaptedExperts, MisshapenFilesAreOneErrorEach) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const TemporaryDirectory folder;
  const std::string path = folder / "adapter", file = join_path(path, "adapter_model.safetensors");
  using Edit = std::function<std::optional<Tensor>(const std::string&, const Tensor&)>;
  const auto loaded_with = [&](const LoraConfig& config, const Edit& edit) {
    save_adapter(*new_adapter(*model, config, 1, ""), path, "");
    const checkpoints::SafetensorsFile before(file);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& entry : before.entries())
      if (const auto tensor = edit(entry.name, before.tensor(entry.name).clone()))
        tensors.emplace_back(entry.name, *tensor);
    std::vector<checkpoints::TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    remove_all(file);
    checkpoints::SafetensorsWriter writer(file, infos);
    for (const auto& [name, tensor] : tensors) writer.add(tensor);
    writer.close();
    return error_of([&] { load_adapter(*model, path); });
  };
  const std::string experts = "base_model.model.model.layers.1.mlp.experts.";
  expect_has(loaded_with(stacked(kStacked),
                         [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
                           return name == experts + "lora_B.weight" ? tensor.narrow(1, 0, 6).contiguous()
                                                                    : tensor;
                         }),
             "'" + experts + "lora_B.weight' is [32, 6], expected [32, 12]");
  expect_has(loaded_with(stacked(kStacked),
                         [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
                           return name == experts + "base_layer.lora_A.weight"
                                      ? tensor.narrow(0, 0, 10).contiguous()
                                      : tensor;
                         }),
             "'" + experts + "base_layer.lora_A.weight' is [10, 32], expected [12, 32]");
  expect_has(loaded_with(one_by_one({"down_proj"}),
                         [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
                           return name.find("layers.1.mlp.experts.4.") == std::string::npos
                                      ? std::optional(tensor)
                                      : std::nullopt;
                         }),
             "5 of 6 experts would be adapted, 'model.layers.1.mlp.experts.4.down_proj' not");
}

}  // namespace
}  // namespace temper::models
