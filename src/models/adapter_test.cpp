#include "models/adapter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "checkpoints/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

Tensor logits(const Model& model, const layers::Adapter* adapter) {
  Tape tape(false);
  layers::Decoder::Options options;
  options.adapters = {{adapter, 5}};
  const auto input = layers::make_input(std::vector<int32_t>{3, 1, 4, 1, 5}, std::vector<int32_t>{5});
  return model.decoder.logits(tape, model.decoder.forward(tape, input, options), adapter).value;
}

std::vector<float> floats(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

TEST(Adapter, AFreshOneChangesNothingAndDependsOnItsSeed) {
  const auto model = tiny_model();
  const auto a = new_adapter(*model, {.rank = 2}, 1, ""), same = new_adapter(*model, {.rank = 2}, 1, ""),
             other = new_adapter(*model, {.rank = 2}, 2, "");
  EXPECT_EQ(floats(logits(*model, a.get())), floats(logits(*model, nullptr)));
  EXPECT_EQ(floats(a->parameters()[0].value), floats(same->parameters()[0].value));
  EXPECT_NE(floats(a->parameters()[0].value), floats(other->parameters()[0].value));
  const float bound = 1 / std::sqrt(32.f);
  for (const float value : a->parameters()[0].value.values<float>()) EXPECT_LE(std::abs(value), bound);
}

// PEFT puts the embedding's own weight beside its adapter: it must be this model's.
TEST(Adapter, OfAnotherModelIsRefused) {
  const auto model = tiny_model();
  const TemporaryDirectory folder;
  const std::string path = folder / "adapter";
  save_adapter(*new_adapter(*model, {.rank = 2, .targets = {.names = {"embed_tokens"}}}, 1, ""), path, "");
  const auto load_with = [&](const Tensor& embedding) {
    const std::string file = join_path(path, "adapter_model.safetensors");
    const checkpoints::SafetensorsFile before(file);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& entry : before.entries())
      if (!entry.name.ends_with("base_layer.weight"))
        tensors.emplace_back(entry.name, before.tensor(entry.name).clone());
    tensors.emplace_back("base_model.model.model.embed_tokens.base_layer.weight", embedding);
    std::vector<checkpoints::TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    remove_all(file);
    checkpoints::SafetensorsWriter writer(file, infos);
    for (const auto& [name, tensor] : tensors) writer.add(tensor);
    writer.close();
    return load_adapter(*model, path);
  };
  const Tensor own = model->decoder.parameters().at("embedding.weight").value;
  EXPECT_NE(load_with(own), nullptr);
  const Tensor other = own.clone();
  other.data<float>()[7] += 1;
  expect_has(error_of([&] { load_with(other); }),
             "trained on a model with another model.embed_tokens.weight");
  expect_has(error_of([&] { load_with(own.narrow(0, 0, 40)); }), "is [40, 32], this one's is [48, 32]");
}

TEST(Adapter, OneProductIsAdaptedOrTrainedWhole) {
  const auto model = tiny_model();
  LoraConfig config{.rank = 2, .targets = {.names = {"q_proj"}}};
  config.modules_to_save = {"v_proj"};
  expect_has(error_of([&] { new_adapter(*model, config, 1, ""); }),
             "parts of layers.0.attention.qkv.weight are trained whole and other parts adapted");
}

}  // namespace
}  // namespace temper::models
