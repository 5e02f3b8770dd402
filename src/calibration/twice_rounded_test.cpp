// Weights that are rounded to INT4 in blocks and then to FP8: trained models compute with what their exported
// folders hold.
#include "base/files.h"
#include "calibration/calibration.h"
#include "models/export.h"
#include "models/model.h"
#include "tests/support/op_testing.h"
#include "tests/support/quantized_run.h"
#include "tests/support/tiny_model.h"
#include "training/rounded_weights.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using op_testing::values_of;
using quantizers::CalibrationMethod;
using quantizers::Quantizer;
using quantizers::QuantizerKind;

// Whether the factors of a weight's columns are in the norm before it, in exported folders.
bool is_folded(const Quantizer& weight) {
  return weight.columns.exist() && weight.planned.experts == 0 &&
         (weight.planned.name.find(".qkv.") != std::string::npos ||
          weight.planned.name.find(".gate_up.") != std::string::npos);
}

// After updates, with the amax that calibration found before them.
TEST(RoundedTwice, TrainedModelsComputeWithWhatTheirFoldersHold) {
  const QuantizerKind twice{"int4", quantizers::Sharing::kBlock, 16, false, "fp8"}, fp8{"fp8"};
  for (const char* type : {"qwen3", "qwen3_moe"})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const CalibrationMethod method : {CalibrationMethod::kMax, CalibrationMethod::kMse,
                                             CalibrationMethod::kAwqLite, CalibrationMethod::kAwqFull}) {
        SCOPED_TRACE(fmt::format("{} {} {}", type, to_string(dtype), quantizers::name_of(method)));
        const auto model = tiny_model(
            {.type = type, .dtype = dtype, .quantize = {"", {{"layers.*", twice, fp8}}, true, method}});
        calibrate(model->decoder, kQuantizedRows, {.method = method});
        optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
        training::Trainer trainer(model->decoder, optimizer, {});
        const double before = trainer.step(kQuantizedRows, 1e-2).loss;
        for (int i = 0; i < 3; ++i) trainer.step(kQuantizedRows, 1e-2);
        EXPECT_LT(trainer.step(kQuantizedRows, 1e-2).loss, before);
        const TemporaryDirectory out;
        models::export_model(*model, out / "m", "");
        models::BuildOptions options;
        options.dtype = dtype;
        const auto read = models::load_model(out / "m", options);
        const auto rounded = training::rounded_parameters(model->decoder);
        const auto& parameters = model->decoder.parameters();
        int compared = 0;
        for (const Quantizer& each : model->decoder.quantizers().all()) {
          if (each.planned.of_input || is_folded(each)) continue;
          const Tensor& own = rounded[parameters.index_of(each.planned.weight)].own;
          EXPECT_TRUE(values_of(own) == values_of(read->decoder.parameters().value(each.planned.weight)))
              << each.planned.name;
          EXPECT_FALSE(values_of(own) == values_of(parameters.value(each.planned.weight)));
          ++compared;
        }
        EXPECT_GE(compared, 4);
      }
}

// The search for factors looks at the first rounding alone, as nvidia-modelopt's does: it finds those of
// INT4.
TEST(RoundedTwice, FactorsAreThoseOfTheFirstRounding) {
  std::vector<std::vector<op_testing::Doubles>> found;
  for (const char* again : {"", "fp8"}) {
    const QuantizerKind weights{"int4", quantizers::Sharing::kBlock, 16, false, again};
    const auto model = tiny_model(
        {.quantize = {"", {{"layers.*", weights, QuantizerKind{"fp8"}}}, true, CalibrationMethod::kAwqLite}});
    const Calibration calibration =
        calibrate(model->decoder, kQuantizedRows, {.method = CalibrationMethod::kAwqLite});
    EXPECT_EQ(calibration.alphas.size(), 8u);
    auto& all = found.emplace_back();
    for (const Quantizer& each : model->decoder.quantizers().all()) {
      all.push_back(values_of(each.amax));
      if (each.columns.exist()) all.push_back(values_of(each.columns.whole));
      if (!each.planned.rounds_again()) continue;
      const auto amax = each.amax.values<float>();
      EXPECT_EQ(values_of(each.second), (op_testing::Doubles{*std::ranges::max_element(amax)}));
    }
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace temper::calibration
