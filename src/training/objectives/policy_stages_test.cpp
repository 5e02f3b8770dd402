// Sampled answers where stages of a pipeline have parts of the model: log-probabilities before updates,
// losses, what is reported of tokens, work and weights are those of one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "losses/policy_presets.h"
#include "parallel/mesh_groups.h"
#include "tests/support/answer_rows.h"
#include "tests/support/ranked_model.h"
#include "tests/support/tiny_model.h"
#include "training/objectives/gather_rows.h"
#include "training/objectives/policy.h"
#include "training/objectives/sampled_answers.h"
#include "training/objectives/value_learning.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

using collectives::Group;

constexpr int kUpdates = 3;
constexpr int64_t kTokensOfPass = 24;

struct PolicyCourse {
  std::vector<StepResult> steps;
  std::vector<std::vector<float>> log_probs;  // of the rank's rows, before each update
  TokenValues values;                         // of a critic, of the first rows
};

std::unique_ptr<models::Model> stage_of(const parallel::MeshGroups& groups, int chunks, const char* type,
                                        bool gives_values) {
  Json config = tiny_config(type);
  config.set("num_hidden_layers", 4);
  return ranked_model(groups, {.config = config, .chunks = chunks, .gives_values = gives_values});
}

// Of all ranks; what rollouts and a reference say of the tokens is made up.
std::vector<data::PackedRow> sampled_rows(uint32_t step, bool replays) {
  std::vector<data::PackedRow> rows{
      answer_row(3 * step + 1, {{9, {{4, true}, {6, true}}}, {1, {{3, true}}}}, true),
      answer_row(3 * step + 2, {{14, {{5, true}}}}, true),
      answer_row(3 * step + 3, {{2, {{7, true}, {1, true}, {3, true}}}, {6, {{9, true}}}}, true)};
  double number = step;
  for (data::PackedRow& row : rows) {
    for (int64_t i = 0; i < row.num_targets(); ++i) {
      const auto about = [&](double from) { return static_cast<float>(from + 0.3 * std::sin(++number)); };
      row.sampled.append({.rollout_log_probs = {about(-3.9)},
                          .reference_log_probs = {about(-3.9)},
                          .advantages = {about(0.1)}},
                         0);
    }
    // Of each of four routers two experts of six.
    for (int64_t i = 0; replays && i < 4 * row.size(); ++i) {
      const auto first = static_cast<int32_t>((i * 5 + i / 7) % 6);
      row.experts.push_back(first);
      row.experts.push_back((first + 1 + static_cast<int32_t>(i % 3)) % 6);
    }
  }
  return rows;
}

struct PolicyCase {
  const char* type = "qwen3";
  const char* preset = "grpo";
  bool replays = false;  // rows say which experts are used
};

PolicyCourse learn(Group& all, const Mesh& mesh, int chunks, const PolicyCase& of) {
  const parallel::MeshGroups groups(all, mesh);
  const parallel::UpdateRanks ranks = groups.update();
  const auto model = stage_of(groups, chunks, of.type, false),
             critic = stage_of(groups, chunks, of.type, true);
  PolicyOptions policy{losses::policy_preset(of.preset).policy, 0.8, 0.01, 16, true};
  const auto objective = std::make_shared<PolicyGradient>(model->decoder, policy, kTokensOfPass);
  optimizers::AdamWOptions damped;
  damped.eps = 1e-2;
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), damped, groups.sharing());
  TrainerOptions options{.micro_batch_tokens = kTokensOfPass};
  options.pipeline = parallel::usual_kind(chunks);
  Trainer trainer(model->decoder, optimizer, options, objective, ranks);
  PolicyCourse course;
  for (uint32_t step = 0; step < kUpdates; ++step) {
    std::vector<data::PackedRow> rows =
        rows_of_rank(sampled_rows(step, of.replays), ranks.rows.rank(), ranks.rows.size());
    course.log_probs.push_back(
        target_log_probs(model->decoder, nullptr, rows, policy.temperature, kTokensOfPass));
    if (step == 0) course.values = token_values(critic->decoder, nullptr, rows, kTokensOfPass);
    course.steps.push_back(trainer.step(rows, 2e-3));
  }
  return course;
}

void expect_numbers(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5) << i;
}

void expect_course(const PolicyCourse& found, const PolicyCourse& expected, bool same_rows) {
  for (size_t step = 0; step < kUpdates; ++step) {
    SCOPED_TRACE(step);
    const StepResult &own = found.steps[step], &one = expected.steps[step];
    EXPECT_NEAR(own.loss, one.loss, 1e-6 * std::max(1.0, std::abs(one.loss)));
    EXPECT_NEAR(own.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
    EXPECT_EQ(own.tokens, one.tokens);
    EXPECT_DOUBLE_EQ(own.flops, one.flops);
    const PolicyResult &sums = own.policy.value(), &wanted = one.policy.value();
    EXPECT_EQ(sums.sums.answers, wanted.sums.answers);
    EXPECT_EQ(sums.sums.tokens, wanted.sums.tokens);
    EXPECT_NEAR(sums.sums.kl, wanted.sums.kl, 1e-4);
    EXPECT_NEAR(sums.sums.ratio, wanted.sums.ratio, 1e-4);
    EXPECT_NEAR(sums.sums.log_prob_gap, wanted.sums.log_prob_gap, 1e-4);
    EXPECT_NEAR(sums.entropy, wanted.entropy, 1e-4);
    if (same_rows) expect_numbers(found.log_probs[step], expected.log_probs[step]);
  }
  if (!same_rows) return;
  expect_numbers(found.values.before, expected.values.before);
  expect_numbers(found.values.behind, expected.values.behind);
}

TEST(PolicyStages, LearnWhatOneRankLearns) {
  struct Case {
    int stages, chunks;
    Mesh mesh;
  };
  for (const PolicyCase& of :
       {PolicyCase{}, {"qwen3", "gspo"}, {"qwen3_moe", "dapo"}, {"qwen3_moe", "dapo", true}}) {
    const PolicyCourse expected = learn(collectives::alone(), {}, 1, of);
    for (const auto& [stages, chunks, mesh] : {Case{2, 1, {}},
                                               {2, 2, {}},
                                               {4, 1, {}},
                                               {2, 1, {.replicate = 2}},
                                               {2, 1, {.context = 2}},
                                               {2, 1, {.tensor = 2}}}) {
      SCOPED_TRACE(fmt::format("{} {}{}: {} stages of {} parts, {}", of.type, of.preset,
                               of.replays ? " with experts of rollouts" : "", stages, chunks,
                               to_string(mesh)));
      collectives::launch("threads", {.ranks = stages * mesh.size(), .deadline = 60}, [&](Group& all) {
        expect_course(learn(all, mesh, chunks, of), expected, mesh.replicate == 1);
      });
    }
  }
}

}  // namespace
}  // namespace temper::training
