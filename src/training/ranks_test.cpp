// Several ranks, each with a replica of the model and its part of every update's rows, learn what one rank
// learns from all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "collectives/launch.h"
#include "models/adapter.h"
#include "tests/support/answer_rows.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"
#include "training/objectives/preference.h"

namespace temper::training {
namespace {

using collectives::Group;
using data::PackedRow;
using Rows = std::vector<PackedRow>;

constexpr int kSteps = 4;
constexpr double kRate = 2e-3;

// What a rank learns, recorded step by step.
struct Course {
  std::vector<StepResult> results;
  std::vector<std::vector<float>> gradients, weights;  // after each step; gradients are before clipping
  EvalResult evaluation;
};

std::vector<float> numbers_of(const Tensor& tensor) {
  const auto values = tensor.to(DType::kF32).values<float>();
  return {values.begin(), values.end()};
}

std::vector<float> gradients_of(const layers::ParameterStore& parameters) {
  std::vector<float> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters.spec(i).buffer) continue;
    const std::vector<float> one = numbers_of(parameters[i].grad->grad());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<float> weights_of(const layers::ParameterStore& parameters) {
  std::vector<float> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float> one = numbers_of(parameters[i].value);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void keep(Course& course, StepResult result, const layers::ParameterStore& parameters) {
  course.results.push_back(std::move(result));
  course.gradients.push_back(gradients_of(parameters));
  course.weights.push_back(weights_of(parameters));
}

// Rows of a step. Ranks have them in their order: `parts` of them each.
Rows part_of(const Rows& all, const std::vector<size_t>& parts, const Group& ranks) {
  if (ranks.is_alone()) return all;
  size_t first = 0;
  for (int rank = 0; rank < ranks.rank(); ++rank) first += parts[static_cast<size_t>(rank)];
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(parts[static_cast<size_t>(ranks.rank())])};
}

using Learn = std::function<Course(Group& ranks)>;

void expect_close(const std::vector<float>& found, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0, largest = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(found[i] - expected[i])));
    largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
  }
  EXPECT_LE(worst, 1e-6 * largest) << what;
}

void expect_close(double found, double expected, const char* what) {
  EXPECT_NEAR(found, expected, 1e-6 * std::max(1.0, std::abs(expected))) << what;
}

void expect_same_step(const StepResult& found, const StepResult& expected) {
  expect_close(found.loss, expected.loss, "loss");
  expect_close(found.z_loss, expected.z_loss, "z-loss");
  expect_close(found.grad_norm, expected.grad_norm, "gradient norm");
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.target_tokens, expected.target_tokens);
  EXPECT_DOUBLE_EQ(found.flops, expected.flops);
  ASSERT_EQ(found.sources.size(), expected.sources.size());
  for (size_t i = 0; i < found.sources.size(); ++i) {
    expect_close(found.sources[i].sum, expected.sources[i].sum, "loss of a source");
    EXPECT_EQ(found.sources[i].target_tokens, expected.sources[i].target_tokens);
  }
  expect_close(found.balance_loss, expected.balance_loss, "load balancing loss");
  ASSERT_EQ(found.routers.size(), expected.routers.size());
  for (size_t i = 0; i < found.routers.size(); ++i)
    EXPECT_EQ(found.routers[i].counts, expected.routers[i].counts);
  ASSERT_EQ(found.preference.has_value(), expected.preference.has_value());
  if (!found.preference) return;
  expect_close(found.preference->chosen_reward, expected.preference->chosen_reward, "reward");
  expect_close(found.preference->rejected_logp, expected.preference->rejected_logp, "log p");
  expect_close(found.preference->kl, expected.preference->kl, "kl");
  EXPECT_EQ(found.preference->pairs, expected.preference->pairs);
  EXPECT_EQ(found.preference->chosen, expected.preference->chosen);
}

Course alone(const Learn& learn) {
  Course course;
  collectives::launch("local", {}, [&](Group& ranks) { course = learn(ranks); });
  return course;
}

std::vector<Course> together(int ranks, const Learn& learn) {
  std::vector<Course> courses(static_cast<size_t>(ranks));
  collectives::launch("threads", {.ranks = ranks, .deadline = 120},
                      [&](Group& group) { courses[static_cast<size_t>(group.rank())] = learn(group); });
  return courses;
}

void expect_one(int ranks, const Learn& learn) {
  const Course expected = alone(learn);
  for (const StepResult& result : expected.results)
    EXPECT_GT(result.grad_norm, 0.02) << "rounding is far below";
  const std::vector<Course> courses = together(ranks, learn);
  for (const Course& found : courses) {
    for (size_t step = 0; step < expected.results.size(); ++step) {
      SCOPED_TRACE(step);
      expect_same_step(found.results[step], expected.results[step]);
      expect_close(found.gradients[step], expected.gradients[step], "gradients");
      expect_close(found.weights[step], expected.weights[step], "weights");
      EXPECT_EQ(found.weights[step], courses[0].weights[step]) << "replicas are the same bits";
    }
    expect_close(found.evaluation.loss, expected.evaluation.loss, "evaluation");
    EXPECT_EQ(found.evaluation.target_tokens, expected.evaluation.target_tokens);
  }
}

// AdamW divides by the root of the second moment, so weights whose gradients are rounding alone would move
// by the whole rate in either direction; a large eps keeps them where the gradient is.
optimizers::AdamWOptions damped() {
  optimizers::AdamWOptions options;
  options.eps = 1e-2;
  return options;
}

TinyModel by_fast_kernels() {
  TinyModel tiny;
  tiny.ops = {};
  return tiny;
}

// Where float32's rounding grows less from layer to layer and from step to step.
TinyModel calm() {
  TinyModel tiny = by_fast_kernels();
  tiny.deviation = 0.05;
  return tiny;
}

// Rows of unequal tokens and targets: the first ones are short, the second has no target at all.
Rows rows_of(uint32_t step) {
  Rows rows{test_row(10 * step, {3}), test_row(10 * step + 1, {2, 4}), test_row(10 * step + 2, {20, 11}),
            test_row(10 * step + 3, {33}), test_row(10 * step + 4, {1, 7, 5})};
  std::fill(rows[1].targets.begin(), rows[1].targets.end(), data::kIgnore);
  for (PackedRow& row : rows)
    for (size_t d = 0; d < row.document_lengths.size(); ++d)
      row.sources.push_back(static_cast<int32_t>(d % 2));
  return rows;
}

Learn model_course(const TrainerOptions& options, const std::vector<size_t>& parts,
                   const TinyModel& tiny = by_fast_kernels()) {
  return [=](Group& ranks) {
    const auto model = tiny_model(tiny);
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), damped());
    Trainer trainer(model->decoder, optimizer, options, nullptr, ranks);
    Course course;
    for (uint32_t step = 0; step < kSteps; ++step)
      keep(course, trainer.step(part_of(rows_of(step), parts, ranks), kRate), model->decoder.parameters());
    course.evaluation = trainer.evaluate(part_of(rows_of(99), parts, ranks));
    return course;
  };
}

TEST(Ranks, LearnWhatOneLearns) {
  const TrainerOptions options{.max_grad_norm = 0.5, .z_loss = 1e-2, .num_sources = 2};
  expect_one(2, model_course(options, {2, 3}));
  expect_one(3, model_course(options, {1, 1, 3}));  // the second has no target
}

TEST(Ranks, MicroBatchesAndRanksWithoutRowsDoNotMatter) {
  expect_one(2, model_course({.micro_batch_tokens = 16}, {2, 3}));
  expect_one(2, model_course({}, {5, 0}));
  expect_one(2, model_course({.micro_batch_tokens = 1, .checkpointing = Checkpointing::kFull}, {1, 4}));
}

// With the loads of the whole update, and biases that move by them.
TEST(Ranks, RoutersLearnWhatTheyLearnOnOneRank) {
  TrainerOptions options{.micro_batch_tokens = 20};
  options.routers = {.balance_factor = 0.1, .global_balance = true, .bias_rate = 0.01};
  for (const char* type : {"qwen3_moe", "deepseek_v3"}) {
    TinyModel tiny = calm();
    tiny.type = type;
    tiny.experts = tiny.type != std::string_view("qwen3_moe");
    expect_one(2, model_course(options, {2, 3}, tiny));
    expect_one(2, model_course(options, {5, 0}, tiny));
  }
}

// Two adapters with rows of their own; `kept` is the one whose course is kept.
auto adapter_course(const TinyModel& tiny, const LoraConfig& config, int64_t micro_batch_tokens,
                    size_t kept) {
  return [=](Group& ranks) {
    const std::vector<std::vector<size_t>> parts{{2, 3}, {4, 1}};
    const auto model = tiny_model(tiny);
    std::vector<std::unique_ptr<layers::Adapter>> adapters;
    std::vector<std::unique_ptr<optimizers::AdamW>> learners;
    for (uint64_t seed : {1, 2}) {
      adapters.push_back(models::new_adapter(*model, config, seed, ""));
      adapters.back()->set_dropout(config.dropout);
      learners.push_back(
          std::make_unique<optimizers::AdamW>(adapters.back()->parameters(), model->decoder.ops(), damped()));
    }
    AdapterTrainer trainer(model->decoder, {.micro_batch_tokens = micro_batch_tokens}, ranks);
    Course course;
    for (uint32_t step = 0; step < kSteps; ++step) {
      const std::vector<Rows> rows{part_of(rows_of(step), parts[0], ranks),
                                   part_of(rows_of(step + 50), parts[1], ranks)};
      std::vector<AdapterShare> shares;
      for (size_t i = 0; i < 2; ++i)
        shares.push_back({adapters[i].get(), learners[i].get(), &rows[i], kRate, i, 2});
      std::vector<PendingStep> pending = trainer.begin(shares);
      std::vector<StepResult> results;
      for (PendingStep& one : pending) results.push_back(one.wait());
      keep(course, results[kept], adapters[kept]->parameters());
    }
    course.evaluation = evaluate(model->decoder, adapters[kept].get(), part_of(rows_of(99), parts[0], ranks),
                                 micro_batch_tokens, ranks);
    return course;
  };
}

// Dropout counts the tokens of the whole update.
TEST(Ranks, AdaptersLearnWhatTheyLearnOnOneRank) {
  LoraConfig config{.rank = 3, .alpha = 3, .dropout = 0.2};
  config.targets = {.regex = ".*_proj|.*embed_tokens"};
  expect_one(2, adapter_course(calm(), config, 0, 0));
  expect_one(2, adapter_course(calm(), config, 20, 1));
}

TEST(Ranks, AdaptersOfExpertsLearnWhatTheyLearnOnOneRank) {
  LoraConfig config{.rank = 3, .alpha = 3};
  config.parameters = {"experts.gate_up_proj", "experts.down_proj", "gate.weight"};
  TinyModel tiny = calm();
  tiny.type = "qwen3_moe";
  expect_one(2, adapter_course(tiny, config, 0, 0));
  expect_one(2, adapter_course(tiny, config, 20, 1));
}

// Answers to other prompts, of which KTO's z0 is made, may be another rank's.
TEST(Ranks, PreferencesAreThoseOfOneRank) {
  const auto rows_of_pairs = [](uint32_t step) {
    return Rows{answer_row(3 * step + 1, {test_pair(9, 4, 6), test_pair(1, 3, 2)}, true),
                answer_row(3 * step + 2, {test_pair(14, 5, 3)}, true),
                answer_row(3 * step + 3, {test_pair(2, 7, 1), test_pair(6, 2, 9)}, true)};
  };
  for (const PreferenceLoss& loss : {PreferenceLoss(losses::Dpo{.beta = 0.3}), PreferenceLoss(losses::Orpo{}),
                                     PreferenceLoss(losses::Kto{.beta = 0.2})}) {
    SCOPED_TRACE(loss.index());
    expect_one(2, [&](Group& ranks) {
      const auto model = tiny_model(calm()), before = tiny_model(calm());
      const auto objective = std::make_shared<Preference>(
          model->decoder, loss, 0, std::make_shared<ModelReference>(before->decoder, 0));
      optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), damped());
      Trainer trainer(model->decoder, optimizer, {.micro_batch_tokens = 24}, objective, ranks);
      Course course;
      for (uint32_t step = 0; step < kSteps; ++step) {
        const Rows rows = part_of(rows_of_pairs(step), {1, 2}, ranks);
        objective->check(rows, ranks);
        keep(course, trainer.step(rows, kRate), model->decoder.parameters());
      }
      course.evaluation = trainer.evaluate(part_of(rows_of_pairs(99), {2, 1}, ranks));
      return course;
    });
  }
}

// The mean over ranks of means over their own tokens is another gradient for such rows: what the tests above
// are there to notice.
TEST(Ranks, AMeanOfMeansWouldBeNoticed) {
  const Learn means = [](Group& ranks) {
    const auto model = tiny_model(by_fast_kernels());
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), damped());
    const Rows rows = part_of(rows_of(0), {2, 3}, ranks);
    Trainer own(model->decoder, optimizer, {});  // as if there were no other rank
    Course course;
    course.results.push_back(own.step(rows, 0));
    optimizer.sum_gradients(ranks);
    course.gradients.push_back(gradients_of(model->decoder.parameters()));
    for (float& value : course.gradients.back()) value /= static_cast<float>(ranks.size());
    return course;
  };
  const Course expected = alone(means), found = together(2, means)[0];
  double worst = 0;
  for (size_t i = 0; i < expected.gradients[0].size(); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(found.gradients[0][i] - expected.gradients[0][i])));
  EXPECT_GT(worst, 1e-2);
}

// All ranks skip the same update and say the same: whose numbers are none.
TEST(Ranks, OneThatDivergesIsAnErrorOnAll) {
  std::mutex mutex;
  std::vector<std::string> errors;
  collectives::launch("threads", {.ranks = 2}, [&](Group& ranks) {
    const auto model = tiny_model(by_fast_kernels());
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
    Trainer trainer(model->decoder, optimizer, {}, nullptr, ranks);
    const std::vector<float> before = weights_of(model->decoder.parameters());
    const Tensor norm = model->decoder.parameters().at("norm.weight").value;
    const float kept = norm.data<float>()[0];
    if (ranks.rank() == 1) norm.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    std::string error;
    try {
      trainer.step(part_of(rows_of(0), {2, 3}, ranks), kRate);
    } catch (const Error& found) {
      error = found.what();
    }
    norm.data<float>()[0] = kept;
    const std::lock_guard lock(mutex);
    errors.push_back(error);
    EXPECT_EQ(weights_of(model->decoder.parameters()), before);
  });
  EXPECT_NE(errors[0].find("the loss is nan on rank 1 and the gradient norm nan"), std::string::npos)
      << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(Ranks, WithoutATargetAnywhereAllRefuse) {
  collectives::launch("threads", {.ranks = 2}, [&](Group& ranks) {
    const auto model = tiny_model(by_fast_kernels());
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
    Trainer trainer(model->decoder, optimizer, {}, nullptr, ranks);
    const Rows silent{rows_of(0)[1]};
    EXPECT_THROW(trainer.step(silent, kRate), Error);
    ranks.barrier("after");
  });
}

}  // namespace
}  // namespace temper::training
