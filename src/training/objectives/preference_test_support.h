#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/answer_rows.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"
#include "training/gradients_test_support.h"
#include "training/objectives/preference.h"
#include "training/trainer.h"

// Rows, references and models that tests of preferences share.
namespace temper::training {

using data::PackedRow;
using op_testing::Doubles;

inline std::vector<PackedRow> pair_rows(bool share) {
  return {answer_row(1, {test_pair(9, 4, 6), test_pair(1, 3, 2)}, share),
          answer_row(2, {test_pair(14, 5, 3)}, share),
          answer_row(3, {test_pair(2, 7, 1), test_pair(6, 2, 9)}, share)};
}

inline std::vector<PackedRow> judged_rows() {
  return {answer_row(4, {{5, {{4, true}}}, {3, {{6, false}}}}, true), answer_row(5, {{8, {{3, true}}}}, true),
          answer_row(6, {test_pair(4, 5, 2)}, true)};
}

// Says something else of every answer, and of mismatched ones too.
class OddReference : public Reference {
 public:
  std::vector<double> logps(const std::vector<PackedRow>& rows) const override {
    std::vector<double> all;
    for (const PackedRow& row : rows)
      for (const auto& answers : row.answers)
        for (const data::Answer& answer : answers)
          all.push_back(-3.0 * static_cast<double>(answer.length) - static_cast<double>(row.ids[0]) / 16);
    return all;
  }
  double flops(std::span<const DocumentSpan>) const override { return 0; }
};

inline std::vector<PreferenceLoss> all_losses() {
  return {losses::Dpo{},
          losses::Dpo{.beta = 0.3, .label_smoothing = 0.2},
          losses::Dpo{.beta = 2, .margin = 0.5, .length_normalized = true, .reference_free = true},
          losses::Dpo{.form = losses::Dpo::Form::kIpo, .length_normalized = true},
          losses::Orpo{.lambda = 0.4},
          losses::Kto{.beta = 0.2, .desirable_weight = 1.3}};
}

inline bool is_kto(const PreferenceLoss& loss) { return std::holds_alternative<losses::Kto>(loss); }

inline TinyModel fast_model(const char* type = "qwen3") {
  TinyModel tiny{.type = type};
  tiny.ops = {};
  return tiny;
}

struct PreferenceBench {
  explicit PreferenceBench(const PreferenceLoss& loss, const TrainerOptions& options = {},
                           const TinyModel& tiny = fast_model())
      : model(tiny_model(tiny)),
        objective(std::make_shared<Preference>(model->decoder, loss, options.micro_batch_tokens,
                                               std::make_shared<OddReference>())),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options, objective) {}
  Doubles gradients() const { return gradients_of(model->decoder.parameters()); }
  std::unique_ptr<models::Model> model;
  std::shared_ptr<Preference> objective;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

}  // namespace temper::training
