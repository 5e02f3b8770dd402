// Quantization-aware training: what a pass computes with, its gradients, calibration.
#include <cmath>

#include "quant/number_format.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/calibration.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using data::PackedRow;
using layers::QuantizeOptions;
using layers::Quantizer;
using layers::QuantizerKind;
using layers::Sharing;
using op_testing::values_of;

const std::vector<PackedRow> kQuantizedRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

struct QuantizedRun {
  explicit QuantizedRun(const TinyModel& tiny, const TrainerOptions& options = {})
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options) {}
  void calibrate() { training::calibrate(model->decoder, kQuantizedRows); }
  std::vector<op_testing::Doubles> gradients() {
    std::vector<op_testing::Doubles> all;
    auto& parameters = model->decoder.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) all.push_back(values_of(parameters[i].grad->grad()));
    return all;
  }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

// Weights only, of linears and experts; blocks that divide the tiny model's 32, 16 and 48 columns.
QuantizeOptions only_weights(const QuantizerKind& kind) {
  return {"", {{"layers.*", kind, {}}, {"layers.*.mlp.experts.*", kind, {}}}};
}
QuantizeOptions only_weights_of(const char* type, const QuantizerKind& kind) {
  QuantizeOptions options = only_weights(kind);
  if (std::string_view(type) != "qwen3_moe") options.rules.pop_back();
  return options;
}

const std::vector<QuantizerKind>& kinds() {
  static const std::vector<QuantizerKind> all{{"fp8"},
                                              {"fp8", Sharing::kRow},
                                              {"fp8", Sharing::kTile, 16},
                                              {"int8", Sharing::kRow},
                                              {"int4", Sharing::kBlock, 16},
                                              {"nvfp4"}};
  return all;
}

// Every weight that has a quantizer, encoded as an exported folder has it and decoded again.
void export_weights(models::Model& plain, const models::Model& quantized) {
  for (const Quantizer& each : quantized.decoder.quantizers().all()) {
    if (each.planned.of_input) continue;
    const Tensor value = plain.decoder.parameters().at(each.planned.weight).value;
    const quant::Encoded encoded = quant::encode(each.planned.weight, each.planned.format,
                                                 value.reshape(each.planned.values), each.amax);
    value.copy_from(quant::decode(each.planned.format, encoded, value.dtype()).reshape(value.shape()));
  }
}

// What fakes a format in training is what an exported model computes with: losses and gradients bit by bit,
// but for those that the quantizers' own backward cuts off.
TEST(QuantizedTraining, ComputesWithTheWeightsThatAreExported) {
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const char* provider : {"eager", ""})
        for (const QuantizerKind& kind : kinds()) {
          if (std::string_view(type) == "qwen3_next" && kind.sharing != Sharing::kTensor) continue;
          if (std::string_view(type) == "qwen3_next" && kind.format == "nvfp4") continue;
          SCOPED_TRACE(fmt::format("{} {} {} {}", type, to_string(dtype), provider, kind.format));
          TinyModel tiny{.type = type, .dtype = dtype, .ops = {.fallback = provider}};
          QuantizedRun plain(tiny);
          tiny.quantize = only_weights_of(type, kind);
          QuantizedRun quantized(tiny);
          quantized.calibrate();
          export_weights(*plain.model, *quantized.model);
          const EvalResult expected = plain.trainer.evaluate(kQuantizedRows),
                           found = quantized.trainer.evaluate(kQuantizedRows);
          EXPECT_EQ(found.loss, expected.loss);
          const StepResult step = plain.trainer.step(kQuantizedRows, 0),
                           own = quantized.trainer.step(kQuantizedRows, 0);
          EXPECT_EQ(own.loss, step.loss);
        }
}

// The gradient of a weight is that of its rounded copy: nothing is beyond an amax that was found in it.
TEST(QuantizedTraining, GradientsPassStraightThrough) {
  for (const char* type : {"qwen3", "qwen3_moe"})
    for (const QuantizerKind& kind : kinds()) {
      SCOPED_TRACE(fmt::format("{} {}", type, kind.format));
      TinyModel tiny{.type = type};
      QuantizedRun plain(tiny);
      tiny.quantize = only_weights_of(type, kind);
      QuantizedRun quantized(tiny);
      quantized.calibrate();
      export_weights(*plain.model, *quantized.model);
      plain.trainer.step(kQuantizedRows, 0);
      quantized.trainer.step(kQuantizedRows, 0);
      EXPECT_EQ(quantized.gradients(), plain.gradients());
    }
}

// Updates go to the weights themselves, which differ from what passes read.
TEST(QuantizedTraining, LearnsThroughFourBits) {
  TinyModel tiny{.quantize = {"", {{"layers.*", QuantizerKind{"nvfp4"}, QuantizerKind{"fp8"}}}}};
  for (const Checkpointing checkpointing :
       {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull}) {
    QuantizedRun run(tiny, {.checkpointing = checkpointing});
    run.calibrate();
    const double before = run.trainer.step(kQuantizedRows, 1e-2).loss;
    double after = 0;
    for (int i = 0; i < 20; ++i) after = run.trainer.step(kQuantizedRows, 1e-2).loss;
    EXPECT_LT(after, 0.7 * before);
  }
}

TEST(QuantizedTraining, RecomputingLayersAndMicroBatchesChangeNothing) {
  TinyModel tiny{
      .type = "qwen3_moe",
      .quantize = {"",
                   {{"layers.*", QuantizerKind{"fp8"}, QuantizerKind{"int8", Sharing::kRow, 0, true}},
                    {"layers.*.mlp.experts.*", QuantizerKind{"nvfp4"}, QuantizerKind{}}}}};
  QuantizedRun whole(tiny);
  whole.calibrate();
  whole.trainer.step(kQuantizedRows, 0);
  for (const TrainerOptions& options : {TrainerOptions{.checkpointing = Checkpointing::kFull},
                                        TrainerOptions{.checkpointing = Checkpointing::kSelective}}) {
    QuantizedRun other(tiny, options);
    other.calibrate();
    other.trainer.step(kQuantizedRows, 0);
    EXPECT_EQ(other.gradients(), whole.gradients());
  }
  QuantizedRun cut(tiny, {.micro_batch_tokens = 16});
  cut.calibrate();
  cut.trainer.step(kQuantizedRows, 0);
  const auto found = cut.gradients(), expected = whole.gradients();
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t j = 0; j < found[i].size(); ++j) EXPECT_NEAR(found[i][j], expected[i][j], 1e-6) << i;
}

// One quantizer that all experts share has the largest amax, and gives what its own model gives.
TEST(QuantizedTraining, AnAmaxOfEachExpertOrTheLargest) {
  const auto amax_of = [](bool per_expert) {
    QuantizeOptions options = only_weights_of("qwen3_moe", {"fp8"});
    options.per_expert = per_expert;
    QuantizedRun run({.type = "qwen3_moe", .quantize = options});
    run.calibrate();
    return values_of(
        run.model->decoder.quantizers().find("layers.1.mlp.experts.down.weight_quantizer")->amax);
  };
  const op_testing::Doubles apart = amax_of(true), together = amax_of(false);
  ASSERT_EQ(apart.size(), 6u);
  ASSERT_EQ(together.size(), 1u);
  EXPECT_EQ(together[0], *std::max_element(apart.begin(), apart.end()));
  for (size_t e = 1; e < apart.size(); ++e) EXPECT_NE(apart[e], apart[0]);
}

TEST(QuantizedTraining, InputsAreCalibratedOverAllRowsWithoutRounding) {
  const TinyModel tiny{.quantize = {"", {{"layers.*", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}}};
  std::vector<op_testing::Doubles> all;
  for (const int64_t tokens : {0, 12}) {
    QuantizedRun run(tiny);
    const Calibration found = calibrate(run.model->decoder, kQuantizedRows, {.micro_batch_tokens = tokens});
    EXPECT_EQ(found.tokens, 45);
    EXPECT_EQ(found.inputs, 8);
    EXPECT_EQ(found.weights, 8);
    all.emplace_back();
    for (const layers::NamedAmax& each : run.model->decoder.quantizers().state())
      all.back().push_back(values_of(each.amax)[0]);
  }
  EXPECT_EQ(all[0], all[1]);
  // Once more, over fewer rows: nothing of the first time is left.
  QuantizedRun run(tiny);
  calibrate(run.model->decoder, kQuantizedRows);
  calibrate(run.model->decoder, {kQuantizedRows[0]});
  bool smaller = false;
  for (size_t i = 0; i < all[0].size(); ++i) {
    const double now = values_of(run.model->decoder.quantizers().state()[i].amax)[0];
    EXPECT_LE(now, all[0][i]);
    smaller = smaller || now < all[0][i];
  }
  EXPECT_TRUE(smaller);
}

TEST(QuantizedTraining, ExpertsWithoutTokensAreNamed) {
  QuantizedRun run({.type = "qwen3_moe",
                    .quantize = {"",
                                 {{"layers.*.mlp.experts.*", QuantizerKind{"fp8"}, {}},
                                  {"layers.0.attention.qkv", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}}});
  const Calibration found = calibrate(run.model->decoder, {test_row(1, {1})});  // top 2 of 6 for one token
  ASSERT_EQ(found.idle_experts.size(), 2u);
  EXPECT_TRUE(found.idle_experts[0].starts_with("layers.0.mlp: experts ")) << found.idle_experts[0];
  EXPECT_EQ(std::count(found.idle_experts[1].begin(), found.idle_experts[1].end(), ','), 3);
}

TEST(QuantizedTraining, RefusesValuesThatAreNotFinite) {
  QuantizedRun run({.quantize = {"", {{"layers.*", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}}});
  auto& parameters = run.model->decoder.parameters();
  parameters.at("layers.1.mlp.down.weight").value.data<float>()[3] = NAN;
  EXPECT_EQ(
      error_of([&] { run.calibrate(); }),
      "[quantize] layers.1.mlp.down.weight_quantizer found an amax of nan: the weight has values that are "
      "no finite numbers");
  parameters.at("layers.1.mlp.down.weight").value.data<float>()[3] = 0;
  parameters.at("layers.0.input_norm.weight").value.data<float>()[3] = INFINITY;
  EXPECT_NE(error_of([&] { run.calibrate(); }).find("attention.qkv.input_quantizer found an amax of"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::training
