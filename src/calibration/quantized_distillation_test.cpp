// Distillation of a model into itself: the student rounds, the teacher has the same weights and does not.
#include <gtest/gtest.h>

#include <memory>

#include "calibration/calibration.h"
#include "collectives/local/local.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/objectives/distillation.h"
#include "training/trainer.h"

namespace temper::calibration {
namespace {

using training::Distill;
using training::EvalResult;

const std::vector<data::PackedRow> kDistilledRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

// There is no copy of the weights.
TEST(QuantizedDistill, AModelLearnsFromItsOwnWeights) {
  TinyModel tiny;
  tiny.ops = {};
  const auto plain = tiny_model(tiny);
  tiny.quantize.rules = {{"layers.*", quantizers::QuantizerKind{"int4", quantizers::Sharing::kBlock, 16},
                          quantizers::QuantizerKind{"fp8"}}};
  const auto quantized = tiny_model(tiny);
  calibrate(quantized->decoder, kDistilledRows);
  const Distill apart(quantized->decoder, plain->decoder, {}, 0),
      shared(quantized->decoder, quantized->decoder, {}, 0);
  const EvalResult expected = apart.evaluate(kDistilledRows, nullptr, collectives::alone()),
                   found = shared.evaluate(kDistilledRows, nullptr, collectives::alone());
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_GT(found.loss, 1e-3);
  EXPECT_EQ(quantized->decoder.quantizers().mode(), quantizers::QuantizerMode::kFake);
  optimizers::AdamW optimizer(quantized->decoder.parameters(), quantized->decoder.ops(), {});
  training::Trainer trainer(
      quantized->decoder, optimizer, {},
      std::make_shared<Distill>(quantized->decoder, quantized->decoder, losses::Distillation{}, 0));
  EXPECT_GT(trainer.step(kDistilledRows, 0).grad_norm, 0);
}

}  // namespace
}  // namespace temper::calibration
