// A model in parts computes what it computes in one, and its layers are divided by what they cost.
#include "parallel/model_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "collectives/local/local.h"
#include "layers/glue.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::parallel {
namespace {

using op_testing::Doubles;

constexpr int64_t kLayers = 4;

Json config_of(const char* type) {
  Json config = tiny_config(type);
  config.set("num_hidden_layers", kLayers);
  if (config.find("layer_types") != nullptr)
    config.set("layer_types",
               Json::Array{"linear_attention", "full_attention", "linear_attention", "full_attention"});
  return config;
}

std::unique_ptr<models::Model> built(const char* type, std::vector<int> parts) {
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = ops::OpsConfig{.fallback = std::string(ops::kEager)};
  build.purpose = models::Purpose::kTraining;
  build.ranks.stages.parts = std::move(parts);
  auto model = models::build_model(config_of(type), "tiny", build);
  model->decoder.parameters().initialize(7, 0.1);
  model->decoder.parameters().enable_gradients(DType::kF32);
  return model;
}

struct Computed {
  Doubles hidden;
  std::vector<Doubles> gradients;  // by parameter
};

Computed computed(const models::Model& model, bool checkpoint) {
  std::vector<int32_t> ids(17);
  std::iota(ids.begin(), ids.end(), 3);
  const layers::DecoderInput input = layers::make_input(ids, std::vector<int32_t>{9, 3, 5});
  const layers::Decoder& decoder = model.decoder;
  layers::Decoder::Options options;
  options.checkpoint_layers = checkpoint;
  // Each part on a tape of its own, which gets a copy of what the part before gives.
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Var> inputs, outputs;
  for (int part = 0; part < decoder.ranks().stages.num_parts(); ++part) {
    Tape& tape = *tapes.emplace_back(std::make_unique<Tape>());
    inputs.push_back(part == 0 ? Var{} : tape.variable(outputs.back().value.clone()));
    if (part > 0) {
      EXPECT_EQ(decoder.make_part_input(input).shape(), inputs.back().shape());
    }
    outputs.push_back(decoder.forward(tape, input, options, {part, inputs.back()}));
  }
  Tensor gradient = Tensor::empty(outputs.back().shape(), DType::kF32);
  for (int64_t i = 0; i < gradient.numel(); ++i) gradient.data<float>()[i] = std::sin(static_cast<float>(i));
  for (size_t part = outputs.size(); part-- > 0;) {
    tapes[part]->backward(outputs[part], gradient);
    if (part > 0) gradient = inputs[part].slot->take();
  }
  Computed found{op_testing::values_of(outputs.back().value), {}};
  const layers::ParameterStore& parameters = decoder.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters.spec(i).buffer)
      found.gradients.push_back(op_testing::values_of(parameters[i].grad->grad()));
  return found;
}

TEST(ModelParts, ComputeWhatTheModelComputes) {
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"})
    for (const bool checkpoint : {false, true}) {
      const Computed whole = computed(*built(type, {}), checkpoint);
      for (const std::vector<int>& parts : {std::vector{0, 0, 1, 1}, {0, 1, 1, 2}, {0, 1, 2, 3}}) {
        SCOPED_TRACE(type);
        const Computed found = computed(*built(type, parts), checkpoint);
        EXPECT_EQ(found.hidden, whole.hidden);
        ASSERT_EQ(found.gradients.size(), whole.gradients.size());
        for (size_t i = 0; i < whole.gradients.size(); ++i) {
          double largest = 0, worst = 0;
          ASSERT_EQ(found.gradients[i].size(), whole.gradients[i].size());
          for (size_t at = 0; at < whole.gradients[i].size(); ++at) {
            largest = std::max(largest, std::abs(whole.gradients[i][at]));
            worst = std::max(worst, std::abs(found.gradients[i][at] - whole.gradients[i][at]));
          }
          EXPECT_GT(largest, 0);
          EXPECT_LE(worst, 1e-6 * largest);
        }
      }
    }
}

// The head of a large vocabulary costs as much as layers.
TEST(ModelParts, HaveEqualCosts) {
  const std::unique_ptr<collectives::Group> two = collectives::planned_group(2);
  const auto parts_of = [&](int64_t vocabulary, int64_t layers, int chunks) {
    Json config = config_of("qwen3");
    config.set("num_hidden_layers", layers);
    config.set("vocab_size", vocabulary);
    layers::ModelRanks ranks;
    ranks.stages.ranks = two.get();
    return with_parts(ranks, models::configure(config, "tiny"), chunks).stages.parts;
  };
  EXPECT_EQ(parts_of(48, 4, 1), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(parts_of(48, 4, 2), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(parts_of(1 << 20, 4, 1), (std::vector{0, 0, 0, 1}));
  EXPECT_TRUE(with_parts({}, models::configure(config_of("qwen3"), "tiny")).stages.parts.empty());
  const std::string error = error_of([&] { parts_of(48, 3, 2); });
  expect_has(error, "need 4 layers, the model has 3");
}

// Of the shape of Qwen3-8B, the head takes as long as 2.3 to 2.5 layers (H200), with operations of 3.0.
TEST(ModelParts, TakeEqualTimes) {
  Json config = config_of("qwen3");
  for (const auto& [key, value] : {std::pair{"hidden_size", 4096},
                                   {"intermediate_size", 12288},
                                   {"num_hidden_layers", 36},
                                   {"num_attention_heads", 32},
                                   {"num_key_value_heads", 8},
                                   {"head_dim", 128},
                                   {"vocab_size", 151936}})
    config.set(key, value);
  const PipelineCosts costs = pipeline_costs(models::configure(config, "8b"), 2, 1, {}, {DeviceType::kCuda});
  const double layer = costs.parts[0].backward_weight / 19;
  EXPECT_NEAR((costs.parts[1].backward_weight) / layer, 17, 1e-9);
  EXPECT_NEAR((costs.parts[1].forward / layer - 17) / 3, 2.4, 0.1);
}

}  // namespace
}  // namespace temper::parallel
