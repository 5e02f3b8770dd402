#include "models/adapter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "checkpoints/files/safetensors.h"
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

// The copy is the head's: the embedding, which it was tied to, stays.
TEST(Adapter, ATiedHeadTrainedWholeIsSavedAndLoaded) {
  const auto model = tiny_model();
  const LoraConfig config{.rank = 2, .targets = {.names = {"q_proj"}}, .modules_to_save = {"lm_head"}};
  const auto adapter = new_adapter(*model, config, 1, "");
  const std::vector<float> before = floats(logits(*model, nullptr));
  EXPECT_EQ(floats(logits(*model, adapter.get())), before);
  const Tensor copy = adapter->parameters().at("saved.lm_head.weight").value;
  for (float& value : copy.values<float>()) value *= 2;
  std::vector<float> doubled = before;
  for (float& value : doubled) value *= 2;
  EXPECT_EQ(floats(logits(*model, adapter.get())), doubled);
  const TemporaryDirectory folder;
  const std::string path = folder / "adapter";
  save_adapter(*adapter, path, "");
  EXPECT_EQ(floats(logits(*model, load_adapter(*model, path).get())), doubled);
}

// PEFT saves the embedding's own weight together with its adapter: it must be this model's.
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

struct TrainedPass {
  std::vector<float> logits, loss_and_gradients;
};

// Of a model and an adapter whose B is not zero, which then changes the head's logits.
TrainedPass train_pass(const Model& model, layers::Adapter& adapter) {
  layers::ParameterStore& parameters = adapter.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto values = parameters[i].value.values<float>();
    for (size_t k = 0; k < values.size(); ++k) values[k] += 0.01f * static_cast<float>((k * 7 + i) % 11);
  }
  parameters.enable_gradients(DType::kF32);
  Tape tape;
  const auto input = layers::make_input(std::vector<int32_t>{3, 1, 4, 1, 5}, std::vector<int32_t>{5});
  layers::Decoder::Options options;
  options.adapters = {{&adapter, 5}};
  const Var hidden = model.decoder.forward(tape, input, options);
  const Tensor targets = Tensor::from(std::vector<int32_t>{1, 4, 1, 5, 9});
  const Var loss = model.decoder.loss(tape, hidden, targets, {0.2f}, {&adapter, 5}).loss;
  tape.backward(loss);
  TrainedPass result{floats(logits(model, &adapter)), {loss.value.item()}};
  for (size_t i = 0; i < parameters.size(); ++i)
    for (const float value : floats(parameters[i].grad->grad())) result.loss_and_gradients.push_back(value);
  return result;
}

// A head that is the embedding: the adapter acts on the head alone, as on a head of its own of equal weights.
TEST(Adapter, OfATiedHeadIsAsOfOneOfItsOwn) {
  const auto tied = tiny_model();
  Json::Object config = tiny_config().as_object();
  for (auto& [key, value] : config)
    if (key == "tie_word_embeddings") value = false;
  const auto untied = build_model(config, "tiny", {.dtype = DType::kF32, .ops = TinyModel().ops});
  layers::ParameterStore& own = untied->decoder.parameters();
  for (const WeightSpec& spec : own.table().specs())
    own.set_rows(spec.name, 0, tied->decoder.parameters().value(spec.name));
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"lm_head"}, {"lm_head", "v_proj"}, {"lm_head", "embed_tokens"}}) {
    const LoraConfig lora{.rank = 2, .targets = {.names = targets}};
    const auto a = new_adapter(*tied, lora, 1, ""), b = new_adapter(*untied, lora, 1, "");
    const std::vector<float> before = floats(logits(*tied, a.get()));
    EXPECT_EQ(before, floats(logits(*tied, nullptr)));
    const TrainedPass found = train_pass(*tied, *a), expected = train_pass(*untied, *b);
    EXPECT_EQ(found.logits, expected.logits);
    EXPECT_NE(found.logits, before);
    EXPECT_EQ(found.loss_and_gradients, expected.loss_and_gradients);

    const TemporaryDirectory folder;
    save_adapter(*a, folder / "adapter", "");
    EXPECT_EQ(floats(logits(*tied, load_adapter(*tied, folder / "adapter").get())), found.logits);
  }
}

TEST(Adapter, OfATiedHeadCannotBeMerged) {
  const auto model = tiny_model();
  const TemporaryDirectory folder;
  save_model(*model, folder / "model", "");
  for (const auto& [target, message] :
       {std::pair("lm_head", "changes the head alone, but the model's embedding is the same tensor"),
        std::pair("embed_tokens", "changes the embedding alone, but the model's head is the same tensor")}) {
    const std::string adapter = folder / target;
    save_adapter(*new_adapter(*model, {.rank = 2, .targets = {.names = {target}}}, 1, ""), adapter, "");
    expect_has(error_of([&] { merge_adapter(adapter, folder / "model", folder / "merged", 1 << 20); }),
               message);
  }
}

TEST(Adapter, OneProductIsAdaptedOrTrainedWhole) {
  const auto model = tiny_model();
  LoraConfig config{.rank = 2, .targets = {.names = {"q_proj"}}};
  config.modules_to_save = {"v_proj"};
  expect_has(error_of([&] { new_adapter(*model, config, 1, "adapters.a."); }),
             "[adapters.a.modules_to_save] of model.layers.0.self_attn, v_proj would be trained in full and "
             "q_proj adapted, but q_proj, k_proj, v_proj are one matrix multiplication in Temper; adapt "
             "v_proj as well, or train q_proj in full as well");
}

}  // namespace
}  // namespace temper::models
