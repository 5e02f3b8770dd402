// Judged answers where stages of a pipeline have parts of the model and of its reference: losses, what is
// reported of answers, work and weights are those of one rank, and evaluations, too.
#include <gtest/gtest.h>

#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "parallel/mesh_groups.h"
#include "tests/support/ranked_model.h"
#include "training/objectives/gather_rows.h"
#include "training/objectives/preference_test_support.h"

namespace temper::training {
namespace {

using collectives::Group;

constexpr int kSteps = 3;
constexpr int64_t kMicroBatch = 24;

struct Course {
  std::vector<StepResult> steps;
  EvalResult evaluation;
  std::vector<double> reference;  // of rows that the last step had
};

std::unique_ptr<models::Model> part_of_model(const parallel::MeshGroups& groups, int chunks) {
  Json config = tiny_config("qwen3");
  config.set("num_hidden_layers", 4);
  config.set("tie_word_embeddings", true);
  return ranked_model(groups, {.config = config, .chunks = chunks});
}

Course learn(Group& all, const Mesh& mesh, int chunks, const PreferenceLoss& loss) {
  const parallel::MeshGroups groups(all, mesh);
  const parallel::UpdateRanks ranks = groups.update();
  const auto model = part_of_model(groups, chunks), before = part_of_model(groups, chunks);
  const auto reference = std::make_shared<ModelReference>(before->decoder, kMicroBatch);
  const auto objective = std::make_shared<Preference>(model->decoder, loss, kMicroBatch, reference);
  optimizers::AdamWOptions damped;
  damped.eps = 1e-2;
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), damped, groups.sharing());
  TrainerOptions options{.micro_batch_tokens = kMicroBatch};
  options.pipeline = parallel::usual_kind(chunks);
  Trainer trainer(model->decoder, optimizer, options, objective, ranks);
  const auto rows_of = [&](uint32_t step) {
    return rows_of_rank({answer_row(3 * step + 1, {test_pair(9, 4, 6), test_pair(1, 3, 2)}, true),
                         answer_row(3 * step + 2, {test_pair(14, 5, 3)}, true),
                         answer_row(3 * step + 3, {test_pair(2, 7, 1), test_pair(6, 2, 9)}, true)},
                        ranks.rows.rank(), ranks.rows.size());
  };
  Course course;
  for (uint32_t step = 0; step < kSteps; ++step) course.steps.push_back(trainer.step(rows_of(step), 2e-3));
  course.evaluation = trainer.evaluate(rows_of(99));
  course.reference = reference->logps(rows_of(kSteps - 1));
  return course;
}

void expect_close(const PreferenceResult& found, const PreferenceResult& expected) {
  EXPECT_NEAR(found.chosen_reward, expected.chosen_reward, 1e-5);
  EXPECT_NEAR(found.rejected_reward, expected.rejected_reward, 1e-5);
  EXPECT_NEAR(found.chosen_logp, expected.chosen_logp, 1e-4);
  EXPECT_NEAR(found.rejected_logp, expected.rejected_logp, 1e-4);
  EXPECT_NEAR(found.kl, expected.kl, 1e-5);
  EXPECT_EQ(found.chosen, expected.chosen);
  EXPECT_EQ(found.rejected, expected.rejected);
  EXPECT_EQ(found.pairs, expected.pairs);
  EXPECT_EQ(found.correct, expected.correct);
}

void expect_close(const Course& found, const Course& expected) {
  for (size_t step = 0; step < expected.steps.size(); ++step) {
    SCOPED_TRACE(step);
    const StepResult &own = found.steps[step], &one = expected.steps[step];
    EXPECT_NEAR(own.loss, one.loss, 1e-6 * std::abs(one.loss));
    EXPECT_NEAR(own.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
    EXPECT_EQ(own.tokens, one.tokens);
    EXPECT_DOUBLE_EQ(own.flops, one.flops);
    expect_close(own.preference.value(), one.preference.value());
  }
  EXPECT_NEAR(found.evaluation.loss, expected.evaluation.loss, 1e-6 * std::abs(expected.evaluation.loss));
  EXPECT_EQ(found.evaluation.target_tokens, expected.evaluation.target_tokens);
  expect_close(found.evaluation.preference.value(), expected.evaluation.preference.value());
}

TEST(PreferenceStages, LearnWhatOneRankLearns) {
  struct Case {
    int stages, chunks;
    Mesh mesh;
  };
  for (const PreferenceLoss& loss : all_losses()) {
    const Course expected = learn(collectives::alone(), {}, 1, loss);
    for (const auto& [stages, chunks, mesh] : {Case{2, 1, {}},
                                               {2, 2, {}},
                                               {4, 1, {}},
                                               {2, 1, {.replicate = 2}},
                                               {2, 1, {.context = 2}},
                                               {2, 1, {.tensor = 2}}}) {
      SCOPED_TRACE(
          fmt::format("loss {}, {} stages of {} parts, {}", loss.index(), stages, chunks, to_string(mesh)));
      collectives::launch("threads", {.ranks = stages * mesh.size(), .deadline = 60}, [&](Group& all) {
        const Course found = learn(all, mesh, chunks, loss);
        expect_close(found, expected);
        if (mesh.replicate > 1) return;  // each has other rows
        ASSERT_EQ(found.reference.size(), expected.reference.size());
        for (size_t i = 0; i < found.reference.size(); ++i)
          EXPECT_NEAR(found.reference[i], expected.reference[i], 1e-4);
      });
    }
  }
}

}  // namespace
}  // namespace temper::training
