#include "training/objectives/value_learning.h"

#include <gtest/gtest.h>

#include <cmath>

#include "losses/returns.h"
#include "tests/support/answer_rows.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using data::PackedRow;

std::vector<PackedRow> critic_rows(bool share) {
  const TestDialogue two{5, {{4, true}, {2, true}}}, one{9, {{6, true}}},
      three{2, {{1, true}, {3, true}, {7, true}}};
  return {answer_row(1, {two, one}, share), answer_row(2, {three}, share)};
}

// Old values and returns that differ from token to token.
void set_known(std::vector<PackedRow>& rows, float around) {
  int token = 0;
  for (PackedRow& row : rows) {
    row.sampled = {};
    for (int64_t target = 0; target < row.num_targets(); ++target) {
      row.sampled.values.push_back(around + 0.4f * std::sin(1.3f * static_cast<float>(++token)));
      row.sampled.returns.push_back(around + 0.8f * std::cos(0.7f * static_cast<float>(token)));
    }
  }
}

struct CriticBench {
  explicit CriticBench(double clip, const TrainerOptions& options = {.max_grad_norm = 0},
                       DType dtype = DType::kF32)
      : model(of(dtype)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, options,
                std::make_shared<ValueLearning>(model->decoder, ValueOptions{clip})) {}
  // A body that differs from token to token, and a head that is not 0.
  static std::unique_ptr<models::Model> of(DType dtype) {
    models::BuildOptions build;
    build.dtype = dtype;
    build.gives_values = true;
    auto model = models::build_model(tiny_config(), "tiny", build);
    layers::ParameterStore& parameters = model->decoder.parameters();
    parameters.initialize(3, 0.3);
    Tensor head = Tensor::empty({1, 32}, DType::kF32);
    for (int64_t i = 0; i < 32; ++i) head.data<float>()[i] = 0.2f * std::sin(static_cast<float>(i));
    parameters.set_rows("head.weight", 0, head);
    return model;
  }
  double loss(const std::vector<PackedRow>& rows, double clip) const {
    const std::vector<float> values = token_values(model->decoder, nullptr, rows, 0).before;
    double sum = 0;
    size_t next = 0;
    for (const PackedRow& row : rows)
      for (size_t i = 0; i < row.sampled.values.size(); ++i)
        sum += losses::value_loss(values[next++], row.sampled.values[i], row.sampled.returns[i], clip).loss;
    return sum / static_cast<double>(values.size());
  }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

// Of each parameter, along a direction of its own.
TEST(ValueLearning, GradientsAreCentralDifferences) {
  for (const double clip : {0.0, 0.3}) {
    std::vector<PackedRow> rows = critic_rows(true);
    set_known(rows, 0.1f);
    CriticBench bench(clip);
    const StepResult result = bench.trainer.step(rows, 0);
    EXPECT_NEAR(result.loss, bench.loss(rows, clip), 1e-6);
    if (clip > 0) {
      EXPECT_GT(result.values->clipped, 0);
      EXPECT_LT(result.values->clipped, result.values->tokens);
    }
    // A step forgets its gradients: what it summed is what it would have updated by.
    const auto gradients = bench.optimizer.summed_gradients();
    layers::ParameterStore& parameters = bench.model->decoder.parameters();
    ASSERT_EQ(gradients.size(), parameters.size());
    double largest = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].value;
      const Tensor slope = gradients[i].own.contiguous().reshape({value.numel()});
      const std::vector<float> kept(value.data<float>(), value.data<float>() + value.numel());
      const auto moved = [&](double step) {
        for (int64_t k = 0; k < value.numel(); ++k)
          value.data<float>()[k] =
              kept[static_cast<size_t>(k)] +
              static_cast<float>(step * std::sin(static_cast<double>(k + 1) + 2.0 * clip));
        return bench.loss(rows, clip);
      };
      double expected = 0;
      for (int64_t k = 0; k < value.numel(); ++k)
        expected += slope.data<float>()[k] * std::sin(static_cast<double>(k + 1) + 2.0 * clip);
      constexpr double kStep = 1e-3;
      const double found = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      moved(0);
      largest = std::max(largest, std::abs(expected));
      EXPECT_NEAR(found, expected, 2e-3 * std::max(1.0, std::abs(expected))) << parameters.spec(i).name;
    }
    EXPECT_GT(largest, 0.1);
  }
}

TEST(ValueLearning, NeitherMicroBatchesNorSharedPromptsMatter) {
  std::vector<double> norms;
  std::vector<float> first;
  for (const bool share : {true, false})
    for (const int64_t tokens : {0, 1}) {
      std::vector<PackedRow> rows = critic_rows(share);
      set_known(rows, 0.1f);
      CriticBench bench(0.2, {.max_grad_norm = 0, .micro_batch_tokens = tokens});
      const std::vector<float> values = token_values(bench.model->decoder, nullptr, rows, tokens).before;
      if (first.empty()) first = values;
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], first[i], 1e-5);
      norms.push_back(bench.trainer.step(rows, 0).grad_norm);
    }
  for (const double norm : norms) EXPECT_NEAR(norm, norms.front(), 1e-5 * norms.front());
}

// Behind a token is before the next one of the same answer.
TEST(ValueLearning, ValuesBehindTokensAreThoseBeforeTheNext) {
  const std::vector<PackedRow> rows = critic_rows(true);
  const CriticBench bench(0.2);
  const TokenValues found = token_values(bench.model->decoder, nullptr, rows, 0);
  size_t first = 0;
  for (const size_t length : {4, 2, 6, 1, 3, 7}) {
    for (size_t i = first; i + 1 < first + length; ++i) EXPECT_EQ(found.behind[i], found.before[i + 1]);
    first += length;
  }
  EXPECT_EQ(first, found.before.size());
  EXPECT_NE(found.behind[3], found.before[4]);  // of another answer
}

// Trained values converge to the returns.
TEST(ValueLearning, ValuesComeToTheirReturns) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<PackedRow> rows = critic_rows(true);
    set_known(rows, 0.5f);
    CriticBench bench(0, {}, dtype);
    const double before = bench.trainer.step(rows, 3e-3).loss;
    double after = before;
    for (int i = 0; i < 60; ++i) after = bench.trainer.step(rows, 3e-3).loss;
    EXPECT_LT(after, 0.2 * before) << to_string(dtype);
  }
}

}  // namespace
}  // namespace temper::training
