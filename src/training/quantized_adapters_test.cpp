// Adapters of experts beside inputs of experts that are rounded.
#include <cmath>

#include "models/adapter.h"
#include "tests/support/adapted_stream.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/calibration.h"

namespace temper::training {
namespace {

using op_testing::Doubles;
using op_testing::values_of;

const std::vector<data::PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

enum class Inputs { kAsTheyAre, kRounded };

// A mixture whose experts have these inputs, and an adapter of some of their products.
struct AdaptedMixture {
  AdaptedMixture(Inputs inputs, const std::string& rounds, const std::vector<std::string>& adapts,
                 const std::string& format, bool zeros) {
    TinyModel tiny{.type = "qwen3_moe"};
    if (inputs == Inputs::kRounded)
      tiny.quantize = {"", {{rounds, layers::QuantizerKind{}, layers::QuantizerKind{format}}}};
    model = tiny_model(tiny);
    layers::ParameterStore& parameters = model->decoder.parameters();
    if (zeros)
      for (const WeightSpec& spec : parameters.table().specs())
        if (spec.experts > 0) parameters.set_rows(spec.name, 0, Tensor::zeros(spec.shape, DType::kF32));
    if (inputs == Inputs::kRounded) calibrate(model->decoder, kRows);
    LoraConfig config{.rank = 2, .alpha = 6, .targets = {}};
    config.parameters = adapts;
    adapter = models::new_adapter(*model, config, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i) {
      int k = 0;
      for (float& value : adapter->parameters()[i].value.values<float>())
        value += 0.2f * std::sin(static_cast<float>(++k * 7 + static_cast<int>(i)));
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
                                   "layers.1.mlp.experts.down", {"layers.1.mlp.experts.down_proj"}, format,
                                   false);
      return end_of_stream(*mixture.model, adapts ? mixture.adapter.get() : nullptr);
    });
  }
}

// Where the matrices are zero only adapters count, and nothing that is rounded reaches them: losses and
// gradients are those of a model that rounds nothing (ops/lora_moe_experts, which its test compares with
// double precision).
TEST(QuantizedAdapters, GradientsOfExpertsAreOfInputsAsTheyAre) {
  struct Learnt {
    StepResult result;
    std::vector<std::pair<std::string, Doubles>> gradients;
  };
  const auto learn = [](Inputs inputs) {
    AdaptedMixture mixture(inputs, "layers.*.mlp.experts.*", {"experts.gate_up_proj", "experts.down_proj"},
                           "int2", true);
    optimizers::AdamW optimizer(mixture.adapter->parameters(), mixture.model->decoder.ops(), {});
    AdapterTrainer trainer(mixture.model->decoder, {});
    Learnt learnt{
        trainer
            .begin({{.adapter = mixture.adapter.get(), .optimizer = &optimizer, .rows = &kRows, .lr = 0}})[0]
            .wait(),
        {}};
    for (const PlacedTensor& tensor : optimizer.summed_gradients())
      learnt.gradients.emplace_back(tensor.name, values_of(tensor.own));
    return learnt;
  };
  const Learnt expected = learn(Inputs::kAsTheyAre), found = learn(Inputs::kRounded);
  EXPECT_NEAR(found.result.loss, expected.result.loss, 1e-6 * expected.result.loss);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  EXPECT_GE(found.gradients.size(), 8u);  // of two layers, a and b of two products
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const auto& [name, values] = found.gradients[i];
    const Doubles& wanted = expected.gradients[i].second;
    double largest = 0;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 1e-6) << name;
    for (size_t k = 0; k < values.size(); ++k)
      ASSERT_NEAR(values[k], wanted[k], 1e-4 * largest) << name << " " << k;
  }
}

}  // namespace
}  // namespace temper::training
