#pragma once
#include "calibration/calibration.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::calibration {

inline const std::vector<data::PackedRow> kQuantizedRows{test_row(1, {9}), test_row(2, {4, 12}),
                                                         test_row(3, {20})};

// A tiny model that is trained, with quantizers or without.
struct QuantizedRun {
  explicit QuantizedRun(const TinyModel& tiny, const training::TrainerOptions& options = {})
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options) {}
  void calibrate() { calibration::calibrate(model->decoder, kQuantizedRows); }
  std::vector<op_testing::Doubles> gradients() {
    std::vector<op_testing::Doubles> all;
    auto& parameters = model->decoder.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      all.push_back(op_testing::values_of(parameters[i].grad->grad()));
    return all;
  }
  const quantizers::Quantizer& at(const char* name) { return *model->decoder.quantizers().find(name); }

  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  training::Trainer trainer;
};

inline std::vector<float> all_weights(const std::vector<PlacedTensor>& placed) {
  std::vector<float> all;
  for (const PlacedTensor& each : placed) {
    const Tensor wide = each.own.contiguous().to(DType::kF32);
    const auto values = wide.values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace temper::calibration
