#include "training/objectives/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "losses/policy_presets.h"
#include "tests/support/answer_rows.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"
#include "training/gradients_test_support.h"
#include "training/objectives/gather_rows.h"
#include "training/objectives/sampled_answers.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using data::PackedRow;
using op_testing::close;
using op_testing::Doubles;

std::vector<PackedRow> answer_rows(bool share) {
  const auto group = [](int64_t prompt, std::initializer_list<int64_t> lengths) {
    TestDialogue dialogue{prompt, {}};
    for (const int64_t length : lengths) dialogue.answers.push_back({length, true});
    return dialogue;
  };
  return {answer_row(1, {group(9, {4, 6, 1}), group(2, {3})}, share),
          answer_row(2, {group(14, {5, 3})}, share),
          answer_row(3, {group(1, {7, 1}), group(6, {2, 9, 4})}, share)};
}

TinyModel fast(const char* type = "qwen3") {
  TinyModel tiny{.type = type};
  tiny.ops = {};
  return tiny;
}

// Numbers in [-1, 1) that differ from token to token, the same in every order of rows.
float wave(size_t row, size_t token, double speed) {
  return static_cast<float>(std::sin(1 + speed * static_cast<double>(17 * row + token)));
}

// What is known of the tokens before the update, close to what the model says of them.
void set_sampled(std::vector<PackedRow>& rows, const layers::Decoder& model, double temperature,
                 float old_apart) {
  const std::vector<float> now = target_log_probs(model, nullptr, rows, temperature, 0);
  size_t next = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].sampled = {};
    for (size_t t = 0; t < static_cast<size_t>(rows[r].num_targets()); ++t, ++next)
      rows[r].sampled.append({.rollout_log_probs = {now[next] + 0.3f * wave(r, t, 0.4)},
                              .old_log_probs = {now[next] + old_apart * wave(r, t, 1.3)},
                              .reference_log_probs = {now[next] + 0.2f * wave(r, t, 2.1)},
                              .advantages = {wave(r, t, 0.7)}},
                             0);
  }
}

struct PolicyBench {
  explicit PolicyBench(const PolicyOptions& options, const TrainerOptions& trainer_options = {},
                       const TinyModel& tiny = fast())
      : model(tiny_model(tiny)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(
            model->decoder, optimizer, trainer_options,
            std::make_shared<PolicyGradient>(model->decoder, options, trainer_options.micro_batch_tokens)) {}
  Doubles gradients() const { return gradients_of(model->decoder.parameters()); }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  Trainer trainer;
};

PolicyOptions options_of(const char* preset, double temperature = 1) {
  return {losses::policy_preset(preset).policy, temperature, 0, 16};
}

// Advantages of 1 and ratios of 1: the gradient is that of -log p, which supervised training has.
TEST(PolicyGradient, WithEqualAdvantagesIsThatOfTheLikelihood) {
  for (const char* type : {"qwen3", "llama"})  // one with a tied head
    for (const bool share : {false, true}) {
      std::vector<PackedRow> rows = answer_rows(share);
      PolicyBench policy(options_of("dapo"), {}, fast(type));
      const auto model = tiny_model(fast(type));
      optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
      Trainer likelihood(model->decoder, optimizer, {});
      const StepResult expected = likelihood.step(rows, 0);
      for (PackedRow& row : rows) row.sampled.advantages.assign(static_cast<size_t>(row.num_targets()), 1);
      const StepResult found = policy.trainer.step(rows, 0);
      const Doubles wanted = gradients_of(model->decoder.parameters());
      EXPECT_TRUE(close(policy.gradients(), wanted, 1e-5)) << type << share;
      EXPECT_NEAR(found.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
      EXPECT_NEAR(found.loss, -1, 1e-12);
      EXPECT_EQ(found.policy->sums.lowest_ratio, 1);
      EXPECT_EQ(found.policy->sums.highest_ratio, 1);
    }
}

// The loss as the formulas give it from the model's log-probabilities.
double loss_of(const layers::Decoder& model, const std::vector<PackedRow>& rows,
               const PolicyOptions& options) {
  const std::vector<float> now = target_log_probs(model, nullptr, rows, options.temperature, 0);
  losses::PolicyUpdate update{count_sampled(rows), std::ssize(now), options.most_tokens};
  losses::PolicySums sums;
  size_t next = 0;
  for (const PackedRow& row : rows) {
    size_t token = 0;
    for (const auto& document : row.answers)
      for (const data::Answer& answer : document) {
        // Of its tokens the last of the prompt comes first, and the last of its own predicts nothing.
        const size_t count = static_cast<size_t>(answer.length) - 1;
        std::vector<double> values[5], gradients(count);
        for (size_t i = 0; i < count; ++i, ++token, ++next) {
          const data::TokenColumns& known = row.sampled;
          values[0].push_back(now[next]);
          values[1].push_back(known.old_log_probs[token]);
          values[2].push_back(known.reference_log_probs[token]);
          values[3].push_back(known.rollout_log_probs[token]);
          values[4].push_back(known.advantages[token]);
        }
        losses::policy_loss(options.loss, {values[0], values[1], values[2], values[3], values[4]}, update,
                            gradients, sums);
      }
  }
  return sums.loss;
}

TEST(PolicyGradient, IsThatOfTheFormulasForEveryLoss) {
  for (const char* preset : {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp_baseline", "rloo"})
    for (const double temperature : {1.0, 0.6}) {
      PolicyOptions options = options_of(preset, temperature);
      options.loss.beta = 0.1;
      options.loss.correction = losses::Correction::kTokenTruncated;
      // Differences do not see the edges of what is clipped, which tests of the formulas do.
      if (options.loss.level == losses::RatioLevel::kSequence)
        options.loss.clip_low = options.loss.clip_high = 0.2;
      PolicyBench bench(options);
      std::vector<PackedRow> rows = answer_rows(true);
      set_sampled(rows, bench.model->decoder, temperature, 0.05f);
      const double expected = loss_of(bench.model->decoder, rows, options);
      EXPECT_NEAR(bench.trainer.step(rows, 0).loss, expected, 1e-6 * std::max(1.0, std::abs(expected)))
          << preset;
      // Along a direction, against central differences. The stop-gradients of cispo are in no difference.
      if (options.loss.kind == losses::PolicyKind::kCispo) continue;
      const Doubles gradients = bench.gradients();
      layers::ParameterStore& parameters = bench.model->decoder.parameters();
      double slope = 0, length = 0;
      size_t next = 0;
      std::vector<std::vector<float>> direction;
      for (size_t i = 0; i < parameters.size(); ++i) {
        std::vector<float>& own = direction.emplace_back();
        for (int64_t j = 0; j < parameters[i].value.numel(); ++j, ++next) {
          own.push_back(wave(i, static_cast<size_t>(j), 0.37) + static_cast<float>(gradients[next]) * 5);
          slope += gradients[next] * own.back();
          length += own.back() * own.back();
        }
      }
      const auto moved = [&](float step) {
        for (size_t i = 0; i < parameters.size(); ++i)
          for (int64_t j = 0; j < parameters[i].value.numel(); ++j)
            parameters[i].value.data<float>()[j] += step * direction[i][static_cast<size_t>(j)];
        return loss_of(bench.model->decoder, rows, options);
      };
      const auto h = static_cast<float>(4e-3 / std::sqrt(length));
      const double above = moved(h), below = moved(-2 * h);
      EXPECT_NEAR((above - below) / (2 * h), slope, 0.02 * std::abs(slope)) << preset << " " << temperature;
    }
}

TEST(PolicyGradient, NeitherMicroBatchesNorSharedPromptsMatter) {
  for (const char* preset : {"grpo", "dapo", "gspo", "dr_grpo"}) {
    const PolicyOptions options = options_of(preset);
    PolicyBench whole(options), cut(options, {.micro_batch_tokens = 24}), apart(options);
    std::vector<PackedRow> rows = answer_rows(true), twice = answer_rows(false);
    set_sampled(rows, whole.model->decoder, 1, 0.05f);
    set_sampled(twice, whole.model->decoder, 1, 0.05f);
    const StepResult a = whole.trainer.step(rows, 0), b = cut.trainer.step(rows, 0),
                     c = apart.trainer.step(twice, 0);
    for (const StepResult& other : {b, c}) {
      EXPECT_NEAR(other.loss, a.loss, 1e-6 * std::abs(a.loss)) << preset;
      EXPECT_EQ(other.policy->sums.tokens, a.policy->sums.tokens);
      EXPECT_EQ(other.policy->sums.answers, a.policy->sums.answers);
      EXPECT_NEAR(other.policy->entropy, a.policy->entropy, 1e-4);
    }
    EXPECT_TRUE(close(cut.gradients(), whole.gradients(), 1e-5)) << preset;
    EXPECT_TRUE(close(apart.gradients(), whole.gradients(), 1e-4)) << preset;
  }
}

// Experts of a rollout: those that the routers choose change no bit, others are taken instead.
TEST(PolicyGradient, TokensTakeTheExpertsOfTheirRows) {
  const PolicyOptions options = options_of("dapo");
  std::vector<PackedRow> rows = answer_rows(true);
  PolicyBench free(options, {}, fast("qwen3_moe")),
      own(options, {.micro_batch_tokens = 24}, fast("qwen3_moe")), other(options, {}, fast("qwen3_moe"));
  set_sampled(rows, free.model->decoder, 1, 0.05f);
  const layers::Decoder& model = free.model->decoder;
  const size_t routers = model.num_routers();
  ASSERT_EQ(routers, 2u);
  std::vector<PackedRow> chosen = rows, foreign = rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    const MicroBatch batch = gather(rows, r, r + 1);
    layers::Decoder::Options watched;
    watched.routers = model.watch_routers();
    Tape tape(false);
    model.forward(tape, batch.input, watched);
    for (int64_t token = 0; token < rows[r].size(); ++token)
      for (const layers::RouterTrace::Router& router : watched.routers->routers)
        for (int64_t k = 0; k < 2; ++k) {
          const int32_t id = router.ids.data<int32_t>()[token * 2 + k];
          chosen[r].experts.push_back(id);
          foreign[r].experts.push_back((id + 2) % 6);
        }
  }
  const StepResult a = free.trainer.step(rows, 0), b = own.trainer.step(chosen, 0),
                   c = other.trainer.step(foreign, 0);
  EXPECT_NEAR(b.loss, a.loss, 1e-6 * std::abs(a.loss));
  EXPECT_TRUE(close(own.gradients(), free.gradients(), 1e-5));
  EXPECT_GT(std::abs(c.loss - a.loss), 1e-3 * std::abs(a.loss));
  EXPECT_EQ(target_log_probs(model, nullptr, chosen, 1, 0), target_log_probs(model, nullptr, rows, 1, 0));
}

// A batch that is one update old has the ratios of the weights as they are to the weights as they were.
TEST(PolicyGradient, StaleAnswersHaveTheRatiosOfBothWeights) {
  PolicyOptions options = options_of("dapo");
  options.loss.clip_low = 0.9;
  options.loss.clip_high = 10;
  PolicyBench bench(options);
  std::vector<PackedRow> rows = answer_rows(true);
  set_sampled(rows, bench.model->decoder, 1, 0);
  const std::vector<float> before = target_log_probs(bench.model->decoder, nullptr, rows, 1, 0);
  EXPECT_NEAR(bench.trainer.step(rows, 3e-3).policy->sums.highest_ratio, 1, 1e-6);
  const std::vector<float> after = target_log_probs(bench.model->decoder, nullptr, rows, 1, 0);
  double sum = 0, highest = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double ratio = std::exp(double{after[i]} - double{before[i]});
    sum += ratio;
    highest = std::max(highest, ratio);
  }
  const StepResult stale = bench.trainer.step(rows, 0);
  EXPECT_GT(highest, 1.01);
  EXPECT_NEAR(stale.policy->sums.ratio, sum, 1e-5 * sum);
  EXPECT_NEAR(stale.policy->sums.highest_ratio, highest, 1e-5 * highest);
}

// Advantages of 0 leave the entropy alone, whose gradient is compared with differences.
TEST(PolicyGradient, TheEntropyIsMaximised) {
  PolicyOptions options = options_of("dapo");
  options.entropy_factor = 0.7;
  PolicyBench bench(options);
  std::vector<PackedRow> rows = answer_rows(true);
  const StepResult before = bench.trainer.step(rows, 0);
  const auto tokens = static_cast<double>(before.policy->sums.tokens);
  EXPECT_NEAR(before.loss, -0.7 * before.policy->entropy / tokens, 1e-6);
  const double slope = before.grad_norm * before.grad_norm;
  const Doubles gradients = bench.gradients();
  layers::ParameterStore& parameters = bench.model->decoder.parameters();
  const auto moved = [&](double step) {
    size_t next = 0;
    for (size_t i = 0; i < parameters.size(); ++i)
      for (int64_t j = 0; j < parameters[i].value.numel(); ++j)
        parameters[i].value.data<float>()[j] += static_cast<float>(step * gradients[next++]);
    return bench.trainer.step(rows, 0).loss;
  };
  const double h = 1e-2 / before.grad_norm;
  const double above = moved(h), below = moved(-2 * h);
  EXPECT_NEAR((above - below) / (2 * h), slope, 0.02 * slope);
}

}  // namespace
}  // namespace temper::training
