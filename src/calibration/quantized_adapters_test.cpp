// Adapters of experts whose inputs are rounded.
#include <cmath>

#include "calibration/calibration.h"
#include "models/adapter.h"
#include "tests/support/adapted_stream.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"

namespace temper::calibration {
namespace {

using op_testing::Doubles;
using op_testing::values_of;

const std::vector<data::PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

enum class Inputs { kAsTheyAre, kRounded };

// Of the stacked matrices of all experts, or of each expert's modules: then gate and up are adapted apart.
LoraConfig stacked(const std::vector<std::string>& names) {
  LoraConfig config{.rank = 2, .alpha = 6, .targets = {}};
  config.parameters = names;
  return config;
}
LoraConfig one_by_one(const std::vector<std::string>& names) {
  return {.rank = 3, .alpha = 6, .targets = {.names = names}};
}

// A mixture whose experts have these inputs, and an adapter of some of their products.
struct AdaptedMixture {
  AdaptedMixture(Inputs inputs, const std::string& rounds, const LoraConfig& adapts,
                 const std::string& format, bool zeros, const HardwareFacts& facts = detect_cpu()) {
    TinyModel tiny{.type = "qwen3_moe", .facts = facts};
    if (inputs == Inputs::kRounded)
      tiny.quantize = {"", {{rounds, quantizers::QuantizerKind{}, quantizers::QuantizerKind{format}}}};
    model = tiny_model(tiny);
    layers::ParameterStore& parameters = model->decoder.parameters();
    if (zeros)
      for (const WeightSpec& spec : parameters.table().specs())
        if (spec.experts > 0 && (rounds.ends_with('*') || spec.name.ends_with(".down.weight")))
          parameters.set_rows(spec.name, 0, Tensor::zeros(spec.shape, DType::kF32));
    if (inputs == Inputs::kRounded) calibrate(model->decoder, kRows);
    adapter = models::new_adapter(*model, adapts, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i) {
      const Tensor values = adapter->parameters()[i].value.on({}).clone();
      int k = 0;
      for (float& value : values.values<float>())
        value += 0.2f * std::sin(static_cast<float>(++k * 7 + static_cast<int>(i)));
      adapter->parameters()[i].value.copy_from(values);
    }
  }
  std::unique_ptr<models::Model> model;
  std::unique_ptr<layers::Adapter> adapter;
};

// What an adapter adds to the last product of the last layer is that of what the product read before it was
// rounded.
TEST(QuantizedAdapters, ExpertsReadInputsAsTheyAre) {
  for (const char* format : {"int2", "nvfp4"}) {
    SCOPED_TRACE(format);
    expect_same_addition([&](bool rounds, bool adapts) {
      const AdaptedMixture mixture(rounds ? Inputs::kRounded : Inputs::kAsTheyAre,
                                   "layers.1.mlp.experts.down", stacked({"layers.1.mlp.experts.down_proj"}),
                                   format, false);
      return end_of_stream(*mixture.model, adapts ? mixture.adapter.get() : nullptr);
    });
  }
}

// What is rounded, and what is adapted: both products; gate and up apart; up alone, the second part of what
// gate and up give.
struct Adapted {
  std::string rounds;
  LoraConfig config;
};
const std::vector<Adapted> kAdapted{
    {"layers.*.mlp.experts.*", stacked({"experts.gate_up_proj", "experts.down_proj"})},
    {"layers.*.mlp.experts.*", one_by_one({"gate_proj", "up_proj", "down_proj"})},
    {"layers.*.mlp.experts.down", one_by_one({"up_proj", "down_proj"})}};

struct TrainedStep {
  training::StepResult result;
  std::vector<std::pair<std::string, Doubles>> gradients;
};

// One step of a mixture whose own matrices are zero where they read what is rounded.
TrainedStep train_step(const Adapted& adapted, Inputs inputs, const HardwareFacts& facts = detect_cpu()) {
  AdaptedMixture mixture(inputs, adapted.rounds, adapted.config, "int2", true, facts);
  optimizers::AdamW optimizer(mixture.adapter->parameters(), mixture.model->decoder.ops(), {});
  training::AdapterTrainer trainer(mixture.model->decoder, {});
  TrainedStep trained{
      trainer.begin({{.adapter = mixture.adapter.get(), .optimizer = &optimizer, .rows = &kRows, .lr = 0}})[0]
          .wait(),
      {}};
  for (const PlacedTensor& tensor : optimizer.summed_gradients())
    trained.gradients.emplace_back(tensor.name, values_of(tensor.own));
  return trained;
}

void expect_near(const TrainedStep& found, const TrainedStep& expected, double tolerance) {
  EXPECT_NEAR(found.result.loss, expected.result.loss, 0.01 * tolerance * expected.result.loss);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  EXPECT_GE(found.gradients.size(), 4u);  // of two layers, a and b
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const auto& [name, values] = found.gradients[i];
    const Doubles& wanted = expected.gradients[i].second;
    double largest = 0;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 1e-6) << name;
    for (size_t k = 0; k < values.size(); ++k)
      ASSERT_NEAR(values[k], wanted[k], tolerance * largest) << name << " " << k;
  }
}

// Where the matrices are zero only adapters count, and nothing that is rounded reaches them: losses and
// gradients are those of a model that rounds nothing (ops/lora_moe_experts, which its test compares with
// double precision).
TEST(QuantizedAdapters, GradientsOfExpertsAreOfInputsAsTheyAre) {
  for (const Adapted& adapts : kAdapted)
    expect_near(train_step(adapts, Inputs::kRounded), train_step(adapts, Inputs::kAsTheyAre), 1e-4);
}

TEST(QuantizedAdapters, ExpertsLearnOnAGpuAsOnTheCpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  for (const Adapted& adapts : kAdapted)
    expect_near(train_step(adapts, Inputs::kRounded, detect_hardware("cuda")),
                train_step(adapts, Inputs::kRounded), 1e-3);
}

}  // namespace
}  // namespace temper::calibration
