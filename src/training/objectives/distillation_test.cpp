#include "training/objectives/distillation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "collectives/launch.h"
#include "models/adapter.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/gradients_test_support.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using data::PackedRow;
using op_testing::close;
using op_testing::Doubles;

const std::vector<PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};

TinyModel student_of(const char* type = "qwen3") {
  TinyModel tiny{.type = type};
  tiny.ops = {};
  return tiny;
}

// Of another family and other weights, with the same vocabulary.
std::unique_ptr<models::Model> teacher_model() {
  TinyModel tiny = student_of("llama");
  tiny.deviation = 0.2;
  return tiny_model(tiny);
}

struct Bench {
  explicit Bench(const losses::Distillation& loss, const TrainerOptions& options = {},
                 const TinyModel& tiny = student_of(), collectives::Group& ranks = collectives::alone(),
                 bool watches_logits = false)
      : teacher(teacher_model()),
        model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        objective(
            std::make_shared<Distill>(model->decoder, teacher->decoder, loss, options.micro_batch_tokens)),
        trainer(model->decoder, optimizer, options, objective, ranks) {
    if (watches_logits) objective->watch_logits();
  }
  Doubles gradients() const { return gradients_of(model->decoder.parameters()); }
  std::unique_ptr<models::Model> teacher, model;
  optimizers::AdamW optimizer;
  std::shared_ptr<Distill> objective;
  Trainer trainer;
};

constexpr losses::Distillation kLoss{losses::Divergence::kForward, 1.3, 0.5, 0.2};

// Logits at all tokens, in double.
std::vector<Doubles> logits_of(const layers::Decoder& model, const PackedRow& row) {
  const MicroBatch batch = gather({row}, 0, 1);
  Tape tape(false);
  const Tensor all = model.logits(tape, model.forward(tape, batch.input)).value;
  std::vector<Doubles> rows;
  for (int64_t t = 0; t < all.dim(0); ++t)
    rows.push_back(op_testing::values_of(all.narrow(0, t, 1).contiguous()));
  return rows;
}

double log_sum(const Doubles& row, double temperature) {
  double sum = 0;
  for (const double x : row) sum += std::exp(x / temperature);
  return std::log(sum);
}

// Forward KL and cross entropy over the rows' targets, from the logits of whole rows.
double loss_of(const Bench& bench, const losses::Distillation& options) {
  double sum = 0, targets = 0;
  for (const PackedRow& row : kRows) {
    const auto own = logits_of(bench.model->decoder, row), theirs = logits_of(bench.teacher->decoder, row);
    for (size_t t = 0; t < row.targets.size(); ++t) {
      if (row.targets[t] == data::kIgnore) continue;
      const double temperature = options.temperature, log_p = log_sum(theirs[t], temperature),
                   log_q = log_sum(own[t], temperature);
      double divergence = 0;
      for (size_t i = 0; i < own[t].size(); ++i) {
        const double p = theirs[t][i] / temperature - log_p, q = own[t][i] / temperature - log_q;
        divergence += std::exp(p) * (p - q);
      }
      const double likelihood = own[t][static_cast<size_t>(row.targets[t])] - log_sum(own[t], 1);
      sum += (1 - options.cross_entropy) * temperature * temperature * divergence -
             options.cross_entropy * likelihood;
      ++targets;
    }
  }
  return sum / targets;
}

TEST(Distill, IsTheMeanOverTargetTokensAndItsGradient) {
  for (const char* type : {"qwen3", "qwen3_moe"}) {
    Bench bench(kLoss, {}, student_of(type));
    const double expected = loss_of(bench, kLoss);
    const EvalResult evaluation = bench.trainer.evaluate(kRows);
    const StepResult step = bench.trainer.step(kRows, 0);
    EXPECT_NEAR(step.loss, expected, 2e-6 * expected);
    EXPECT_NEAR(evaluation.loss, expected, 2e-6 * expected);
    EXPECT_EQ(evaluation.target_tokens, step.target_tokens);
    EXPECT_EQ(step.distillation->tokens, step.target_tokens);
    if (std::string_view(type) == "qwen3_moe") continue;  // differences step over choices of experts
    const Doubles gradients = bench.gradients();
    // Along the gradient itself, against a central difference.
    layers::ParameterStore& parameters = bench.model->decoder.parameters();
    double norm = 0;
    for (const double each : gradients) norm += each * each;
    norm = std::sqrt(norm);
    const auto move = [&](double by) {
      size_t next = 0;
      for (size_t i = 0; i < parameters.size(); ++i)
        for (int64_t e = 0; e < parameters[i].value.numel(); ++e)
          parameters[i].value.data<float>()[e] += static_cast<float>(by * gradients[next++] / norm);
    };
    constexpr double kStep = 4e-3;
    move(kStep);
    const double above = loss_of(bench, kLoss);
    move(-2 * kStep);
    EXPECT_NEAR((above - loss_of(bench, kLoss)) / (2 * kStep), norm, 2e-3 * norm);
  }
}

// What a teacher says of its most probable tokens, before training.
class Recorded : public KnownTokens {
 public:
  Recorded(const layers::Decoder& teacher, int64_t top_k, double temperature) {
    for (const PackedRow& row : kRows)
      read_top_tokens(teacher, {row}, top_k, temperature, 0, [&](const losses::TopTokens& some) {
        all_.push_back({row.ids, some});
      });
  }
  losses::TopTokens of(std::span<const PackedRow> rows) const override {
    EXPECT_EQ(rows.size(), 1U);
    for (const auto& [ids, tokens] : all_)
      if (ids == rows[0].ids) return tokens;
    ADD_FAILURE() << "a row is not known";
    return {};
  }

 private:
  std::vector<std::pair<std::vector<int32_t>, losses::TopTokens>> all_;
};

// Passes of one row: those of recording and training have the same rows, and so the same bits.
TEST(Distill, OfRecordedLogitsIsThatOfTheTeacherInMemory) {
  const auto teacher = teacher_model();
  struct Step {
    StepResult result;
    EvalResult evaluation;
    Doubles gradients;
  };
  const auto step = [&](auto from) {
    const auto model = tiny_model(student_of());
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
    Trainer trainer(model->decoder, optimizer, {.micro_batch_tokens = 1}, from(model->decoder));
    Step step;
    step.evaluation = trainer.evaluate(kRows);
    step.result = trainer.step(kRows, 0);
    step.gradients = gradients_of(model->decoder.parameters());
    return step;
  };
  const auto known = std::make_shared<Recorded>(teacher->decoder, 5, kLoss.temperature);
  const Step memory = step([&](const layers::Decoder& model) {
    return std::make_shared<Distill>(model, teacher->decoder, kLoss, 1, 5);
  });
  const Step stored =
      step([&](const layers::Decoder& model) { return std::make_shared<Distill>(model, known, kLoss, 1); });
  const Step whole = step([&](const layers::Decoder& model) {
    return std::make_shared<Distill>(model, teacher->decoder, kLoss, 1);
  });
  EXPECT_EQ(stored.result.loss, memory.result.loss);
  EXPECT_EQ(stored.evaluation.loss, memory.evaluation.loss);
  EXPECT_EQ(stored.result.distillation->agreement, whole.result.distillation->agreement);
  EXPECT_EQ(stored.gradients, memory.gradients);
  EXPECT_LT(memory.result.distillation->divergence, whole.result.distillation->divergence);
  EXPECT_LT(stored.result.flops, memory.result.flops);  // no teacher computes
}

TEST(Distill, IsTheSameForAllMicroBatches) {
  Bench whole(kLoss), cut(kLoss, {.micro_batch_tokens = 16});
  const StepResult expected = whole.trainer.step(kRows, 0), found = cut.trainer.step(kRows, 0);
  EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_NEAR(found.distillation->teacher_entropy, expected.distillation->teacher_entropy, 1e-6);
  EXPECT_EQ(found.distillation->agreement, expected.distillation->agreement);
  EXPECT_TRUE(close(cut.gradients(), whole.gradients(), 1e-5));
}

TEST(Distill, OfSeveralRanksIsThatOfOne) {
  Bench alone(kLoss, {.micro_batch_tokens = 16});
  const StepResult expected = alone.trainer.step(kRows, 0);
  std::mutex mutex;
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    std::unique_ptr<Bench> own;
    {
      const std::lock_guard lock(mutex);
      own = std::make_unique<Bench>(kLoss, TrainerOptions{.micro_batch_tokens = 16}, student_of(), ranks);
    }
    const std::vector<PackedRow> rows =
        ranks.rank() == 0 ? std::vector{kRows[0], kRows[1]} : std::vector{kRows[2]};
    const StepResult found = own->trainer.step(rows, 0);
    const std::lock_guard lock(mutex);
    EXPECT_NEAR(found.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_NEAR(found.distillation->divergence, expected.distillation->divergence, 1e-6);
    EXPECT_EQ(found.distillation->tokens, expected.distillation->tokens);
    EXPECT_TRUE(close(own->gradients(), alone.gradients(), 1e-5));
  });
}

// Of all target tokens, whatever the passes and ranks, before the temperature divides them.
TEST(Distill, LogitsOfBothModelsAreReportedOnEveryRank) {
  std::mutex mutex;
  const auto watched = [&](const std::vector<PackedRow>& rows, collectives::Group& ranks) {
    std::unique_ptr<Bench> bench;
    {
      const std::lock_guard lock(mutex);
      bench =
          std::make_unique<Bench>(kLoss, TrainerOptions{.micro_batch_tokens = 16}, student_of(), ranks, true);
    }
    return *bench->trainer.step(rows, 0).distillation;
  };
  Doubles own, theirs;
  const auto teacher = teacher_model(), model = tiny_model(student_of());
  int64_t tokens = 0;
  for (const PackedRow& row : kRows) {
    const auto of_student = logits_of(model->decoder, row), of_teacher = logits_of(teacher->decoder, row);
    for (size_t t = 0; t < row.targets.size(); ++t) {
      if (row.targets[t] == data::kIgnore) continue;
      ++tokens;
      own.insert(own.end(), of_student[t].begin(), of_student[t].end());
      theirs.insert(theirs.end(), of_teacher[t].begin(), of_teacher[t].end());
    }
  }
  const auto expect = [&](const losses::LogitStatistics& found, const Doubles& all) {
    double sum = 0, squares = 0;
    for (const double x : all) sum += x;
    const double mean = sum / static_cast<double>(all.size());
    for (const double x : all) squares += (x - mean) * (x - mean);
    EXPECT_NEAR(found.mean(), mean, 1e-5);
    EXPECT_NEAR(found.deviation(), std::sqrt(squares / static_cast<double>(all.size() - 1)), 1e-5);
    EXPECT_NEAR(found.least, *std::ranges::min_element(all), 1e-5);
    EXPECT_NEAR(found.largest, *std::ranges::max_element(all), 1e-5);
    EXPECT_EQ(found.tokens, tokens);
    EXPECT_EQ(found.vocabulary, 48);
  };
  const DistillationResult alone = watched(kRows, collectives::alone());
  expect(alone.student_logits, own);
  expect(alone.teacher_logits, theirs);
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    const DistillationResult found =
        watched(ranks.rank() == 0 ? std::vector{kRows[0], kRows[1]} : std::vector{kRows[2]}, ranks);
    const std::lock_guard lock(mutex);
    expect(found.student_logits, own);
    expect(found.teacher_logits, theirs);
  });
  Bench quiet(kLoss);
  EXPECT_TRUE(quiet.trainer.step(kRows, 0).distillation->student_logits.empty());
}

TEST(Distill, ComesCloserToTheTeacher) {
  Bench bench({});
  std::vector<double> divergences;
  for (int step = 0; step < 3; ++step)
    divergences.push_back(bench.trainer.step(kRows, 3e-3).distillation->divergence);
  EXPECT_LT(divergences[1], divergences[0]);
  EXPECT_LT(divergences[2], divergences[1]);
}

}  // namespace
}  // namespace temper::training
