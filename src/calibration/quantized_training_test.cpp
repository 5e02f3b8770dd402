// Quantization-aware training: what a pass computes with, its gradients, calibration.
#include <cmath>

#include "base/files.h"
#include "base/tracing/trace.h"
#include "calibration/calibration.h"
#include "models/adapter.h"
#include "quant/number_format.h"
#include "tests/support/adapted_stream.h"
#include "tests/support/decoded.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/quantized_run.h"
#include "training/rounded_weights.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using data::PackedRow;
using op_testing::values_of;
using quantizers::QuantizeOptions;
using quantizers::Quantizer;
using quantizers::QuantizerKind;
using quantizers::Sharing;

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
                                              {"int4", Sharing::kBlock, 16, false, "fp8"},
                                              {"nvfp4"}};
  return all;
}

// Every weight that has a quantizer, encoded as an exported folder has it and decoded again.
void export_weights(models::Model& plain, const models::Model& quantized) {
  for (const Quantizer& each : quantized.decoder.quantizers().all()) {
    if (each.planned.of_input) continue;
    const Tensor value = plain.decoder.parameters().at(each.planned.weight).value;
    const auto coded = [&](const Tensor& values, const quant::Format& format, const Tensor& amax) {
      return quant::decode(format, quant::encode(each.planned.weight, format, values, amax), DType::kF32);
    };
    Tensor rounded = coded(value.reshape(each.planned.values), each.planned.format, each.amax);
    if (each.planned.rounds_again())
      rounded =
          coded(rounded, each.planned.second_format(), quant::amax_of(each.amax, each.planned.second_amax()));
    value.copy_from(rounded.to(value.dtype()).reshape(value.shape()));
  }
}

// What fakes a format in training is what an exported model computes with: losses and gradients bit by bit,
// except those that the quantizers' own backward cuts off.
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
          const std::vector<float> before = all_weights(quantized.model->decoder.parameters().placed());
          export_weights(*plain.model, *quantized.model);
          // What is sent to another process is that, too, and changes nothing here.
          EXPECT_TRUE(all_weights(training::rounded_parameters(quantized.model->decoder)) ==
                      all_weights(plain.model->decoder.parameters().placed()));
          EXPECT_TRUE(all_weights(quantized.model->decoder.parameters().placed()) == before);
          const training::EvalResult expected = plain.trainer.evaluate(kQuantizedRows),
                                     found = quantized.trainer.evaluate(kQuantizedRows);
          EXPECT_EQ(found.loss, expected.loss);
          const training::StepResult step = plain.trainer.step(kQuantizedRows, 0),
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

// Masters are what a folder holds, to the last bit, and not what passes round it to; an update starts from
// there.
TEST(QuantizedTraining, MastersAreTheValuesOfTheFolder) {
  const TemporaryDirectory folder;
  for (const char* type : {"qwen3", "qwen3_moe"}) {
    SCOPED_TRACE(type);
    const std::string path = folder / type;
    models::save_model(*tiny_model({.type = type, .dtype = DType::kBF16}), path, "");
    models::BuildOptions build{.dtype = DType::kBF16, .ops = ops::all_eager()};
    const auto plain = models::load_model(path, build);
    build.quantize = {"", {{"layers.*", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}};
    const auto model = models::load_model(path, build);
    layers::ParameterStore& parameters = model->decoder.parameters();
    optimizers::AdamW optimizer(parameters, model->decoder.ops(), {});
    training::Trainer trainer(model->decoder, optimizer, {});
    calibrate(model->decoder, kQuantizedRows);
    ASSERT_FALSE(all_weights(training::rounded_parameters(model->decoder)) ==
                 all_weights(parameters.placed()));
    trainer.step(kQuantizedRows, 0);  // no learning rate, so that nothing moves
    size_t masters = 0;
    for (const PlacedTensor& state : optimizer.state()) {
      constexpr std::string_view kMaster = "master.";
      if (!state.name.starts_with(kMaster)) continue;
      ++masters;
      const Tensor expected = plain->decoder.parameters().at(state.name.substr(kMaster.size())).value;
      EXPECT_EQ(state.own.dtype(), DType::kF32) << state.name;
      EXPECT_EQ(values_of(state.own), values_of(expected)) << state.name;
    }
    EXPECT_EQ(masters, parameters.size());
    EXPECT_EQ(all_weights(parameters.placed()), all_weights(plain->decoder.parameters().placed()));
  }
}

// Updates go to the weights themselves, which differ from what passes read.
TEST(QuantizedTraining, LearnsThroughFourBits) {
  TinyModel tiny{.quantize = {"", {{"layers.*", QuantizerKind{"nvfp4"}, QuantizerKind{"fp8"}}}}};
  for (const training::Checkpointing checkpointing :
       {training::Checkpointing::kNone, training::Checkpointing::kSelective,
        training::Checkpointing::kFull}) {
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
  for (const training::TrainerOptions& options :
       {training::TrainerOptions{.checkpointing = training::Checkpointing::kFull},
        training::TrainerOptions{.checkpointing = training::Checkpointing::kSelective}}) {
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
    for (const quantizers::NamedScales& each : run.model->decoder.quantizers().state())
      all.back().push_back(values_of(each.values)[0]);
  }
  EXPECT_EQ(all[0], all[1]);
  // Once more, over fewer rows: nothing of the first time is left.
  QuantizedRun run(tiny);
  calibrate(run.model->decoder, kQuantizedRows);
  calibrate(run.model->decoder, {kQuantizedRows[0]});
  bool smaller = false;
  for (size_t i = 0; i < all[0].size(); ++i) {
    const double now = values_of(run.model->decoder.quantizers().state()[i].values)[0];
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

// What passes is rounded where the plan says: with formats that lose nothing of these values, nothing
// changes, and with others everything behind does. The gradient passes.
TEST(QuantizedTraining, OutputsKeysAndValuesAreRounded) {
  QuantizedRun plain{TinyModel{}};
  const training::StepResult expected = plain.trainer.step(kQuantizedRows, 0);
  const auto first_step = [&](const std::vector<quantizers::QuantizerRule>& rules) {
    QuantizedRun run({.quantize = {"", rules}});
    run.calibrate();
    for (const Quantizer& each : run.model->decoder.quantizers().all())
      EXPECT_GT(*each.amax.data<float>(), 0) << each.planned.name;
    return run.trainer.step(kQuantizedRows, 0);
  };
  for (const char* format : {"int2", "fp8", "nvfp4"}) {
    const QuantizerKind kind{format};
    for (const quantizers::QuantizerRule& rule : {quantizers::QuantizerRule{"layers.*", {}, {}, {}, kind},
                                                  {"layers.*.mlp.gate_up", {}, {}, kind, {}},
                                                  {"layers.*.mlp.down", {}, {}, kind, {}}}) {
      const training::StepResult found = first_step({rule});
      EXPECT_NE(found.loss, expected.loss) << format << " " << rule.modules;
      EXPECT_NEAR(found.loss, expected.loss, (kind.format == "fp8" ? 0.01 : 0.3) * expected.loss);
      EXPECT_GT(found.grad_norm, 0.2 * expected.grad_norm);
    }
  }
}

// As inference engines compute adapters of a quantized base: an adapter reads the unrounded input.
TEST(QuantizedTraining, AdaptersReadInputsAsTheyAre) {
  expect_same_addition([](bool rounds, bool adapts) {
    TinyModel tiny;
    if (rounds) tiny.quantize = {"", {{"layers.1.mlp.down", {}, QuantizerKind{"int2"}}}};
    QuantizedRun run(tiny);
    if (rounds) run.calibrate();
    const auto adapter = models::new_adapter(
        *run.model, {.rank = 2, .alpha = 6, .targets = {.names = {"layers.1.mlp.down_proj"}}}, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i)
      for (float& value : adapter->parameters()[i].value.values<float>()) value += 0.1f;
    return end_of_stream(*run.model, adapts ? adapter.get() : nullptr);
  });
}

QuantizeOptions inputs_of_experts(const QuantizerKind& inputs, bool per_expert = true) {
  return {"", {{"layers.*.mlp.experts.*", QuantizerKind{}, inputs}}, per_expert};
}

// However many experts a weight has, rounding them is one call of the kernel (on a GPU one launch, which
// backends/cuda/launches_test.cpp counts).
TEST(QuantizedTraining, AllExpertsOfAWeightAreOneCall) {
  const auto calls = [](int64_t experts, bool per_expert) {
    QuantizedRun run({.type = "qwen3_moe",
                      .quantize = {"", {{"layers.*.mlp.experts.*", QuantizerKind{"fp8"}, {}}}, per_expert},
                      .sizes = {{"num_experts", Json(experts)}}});
    run.calibrate();
    trace::start();
    run.trainer.evaluate(kQuantizedRows);
    int64_t count = 0;
    for (const trace::Event& event : trace::stop()) count += event.name == ops::FakeQuantize::kName ? 1 : 0;
    return count;
  };
  const int64_t few = calls(2, true);
  EXPECT_EQ(few % 4, 0) << "two weights in each of two layers";
  EXPECT_GT(few, 0);
  EXPECT_EQ(calls(32, true), few);
  EXPECT_EQ(calls(32, false), few);
}

// Without rounding the experts compute what they compute as one op.
TEST(QuantizedTraining, ExpertsWhoseInputsAreRoundedAreTheSameExperts) {
  for (const char* provider : {"eager", ""}) {
    TinyModel tiny{.type = "qwen3_moe", .ops = {.fallback = provider}};
    QuantizedRun plain(tiny);
    tiny.quantize = inputs_of_experts({"fp8"});
    QuantizedRun quantized(tiny);
    const quantizers::QuantizersOff off(quantized.model->decoder.quantizers());
    const training::StepResult step = plain.trainer.step(kQuantizedRows, 0),
                               own = quantized.trainer.step(kQuantizedRows, 0);
    EXPECT_NEAR(own.loss, step.loss, 1e-6 * step.loss);
    const auto found = quantized.gradients(), expected = plain.gradients();
    for (size_t i = 0; i < found.size(); ++i) {
      double largest = 0;
      for (const double value : expected[i]) largest = std::max(largest, std::abs(value));
      for (size_t j = 0; j < found[i].size(); ++j)
        EXPECT_NEAR(found[i][j], expected[i][j], 1e-5 * largest) << i << " " << j;
    }
  }
}

// Of the values that reach an expert, and of no others; all kernels round alike.
TEST(QuantizedTraining, EachExpertsInputsHaveTheirOwnAmax) {
  const char* const name = "layers.1.mlp.experts.down.input_quantizer";
  const auto calibrated = [&](const QuantizerKind& kind, bool per_expert, const char* provider) {
    auto run = std::make_unique<QuantizedRun>(TinyModel{
        .type = "qwen3_moe", .ops = {.fallback = provider}, .quantize = inputs_of_experts(kind, per_expert)});
    run->calibrate();
    return run;
  };
  const auto amax = [&](QuantizedRun& run) {
    return values_of(run.model->decoder.quantizers().find(name)->amax);
  };
  const auto apart = calibrated({"fp8"}, true, ""), together = calibrated({"fp8"}, false, "");
  const op_testing::Doubles each = amax(*apart), all = amax(*together);
  ASSERT_EQ(each.size(), 6u);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0], *std::max_element(each.begin(), each.end()));
  EXPECT_LT(*std::min_element(each.begin(), each.end()), all[0]);
  EXPECT_NE(apart->trainer.evaluate(kQuantizedRows).loss, together->trainer.evaluate(kQuantizedRows).loss);
  // With one amax for all experts each of them rounds as if they shared it.
  for (const char* quantizer :
       {name, "layers.0.mlp.experts.down.input_quantizer", "layers.0.mlp.experts.gate_up.input_quantizer",
        "layers.1.mlp.experts.gate_up.input_quantizer"}) {
    const Tensor shared = together->model->decoder.quantizers().find(quantizer)->amax;
    for (float& own : apart->model->decoder.quantizers().find(quantizer)->amax.values<float>())
      own = *shared.data<float>();
  }
  EXPECT_EQ(apart->trainer.evaluate(kQuantizedRows).loss, together->trainer.evaluate(kQuantizedRows).loss);
  for (const QuantizerKind& kind :
       {QuantizerKind{"int8"}, QuantizerKind{"nvfp4"}, QuantizerKind{"fp8", Sharing::kRow, 0, true}}) {
    SCOPED_TRACE(kind.format);
    const double loss = calibrated(kind, true, "")->trainer.evaluate(kQuantizedRows).loss;
    EXPECT_NEAR(calibrated(kind, true, "eager")->trainer.evaluate(kQuantizedRows).loss, loss, 2e-3 * loss);
  }
}

// An expert without a token takes the largest amax of its layer's inputs, whatever finds them.
TEST(QuantizedTraining, IdleExpertsTakeTheLargestInputs) {
  for (const quantizers::CalibrationMethod method :
       {quantizers::CalibrationMethod::kMax, quantizers::CalibrationMethod::kPercentile}) {
    QuantizedRun run({.type = "qwen3_moe", .quantize = inputs_of_experts({"fp8"})});
    const Calibration found = calibrate(run.model->decoder, {test_row(1, {1})}, {.method = method});
    ASSERT_EQ(found.idle_experts.size(), 2u);
    const op_testing::Doubles amax =
        values_of(run.model->decoder.quantizers().find("layers.0.mlp.experts.gate_up.input_quantizer")->amax);
    for (const double own : amax) EXPECT_GT(own, 0);
    // Top 2 of 6 for one token: its two experts have seen the same input.
    for (const double own : amax) EXPECT_EQ(own, amax[0]);
  }
}

TEST(QuantizedTraining, RefusesValuesThatAreNotFinite) {
  QuantizedRun run({.quantize = {"", {{"layers.*", QuantizerKind{"fp8"}, QuantizerKind{"fp8"}}}}});
  auto& parameters = run.model->decoder.parameters();
  parameters.at("layers.1.mlp.down.weight").value.data<float>()[3] = NAN;
  EXPECT_EQ(
      error_of([&] { run.calibrate(); }),
      "[quantize] layers.1.mlp.down.weight_quantizer found an amax of nan: the weight has values that are "
      "not finite");
  parameters.at("layers.1.mlp.down.weight").value.data<float>()[3] = 0;
  parameters.at("layers.0.input_norm.weight").value.data<float>()[3] = INFINITY;
  EXPECT_NE(error_of([&] { run.calibrate(); }).find("attention.qkv.input_quantizer found an amax of"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::calibration
