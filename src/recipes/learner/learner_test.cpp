#include "recipes/learner/learner.h"

#include <gtest/gtest.h>

#include "config/print.h"
#include "recipes/learner/learner_folder.h"
#include "recipes/learner/tiny_run_test_support.h"
#include "recipes/parts/loaded_batches.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

// A learner that has started; its next steps.
std::unique_ptr<Learner> start(const TinyInputs& run) {
  const LearnerInputs& inputs = *run.inputs;
  auto learner =
      std::make_unique<Learner>(*run.setup, inputs.config, DataSets::load(inputs.config, run.setup->text));
  RunConfig copy = inputs.config;
  LearnerFolder(learner->inputs()).open(config::dump(config::schema_of(copy)));
  learner->build();
  learner->start();
  return learner;
}

double loss_of_step(Learner& learner) {
  learner.read_batch();
  learner.begun(learner.begin_alone());
  return learner.report(0).value().result.loss;
}

void save(Learner& learner) {
  learner.prepare_save(false, false);
  learner.checkpoints().write(false);
  learner.commit_save();
}

TEST(Learner, ResumesWithTheLossesOfARunThatWasNotStopped) {
  const TinyInputs run(evaluate_rows, true), other(evaluate_rows, true);
  std::vector<double> losses;
  const auto whole = start(run);
  while (!whole->is_done()) losses.push_back(loss_of_step(*whole));
  {
    const auto first = start(other);
    EXPECT_FALSE(first->report(0)) << "nothing was begun";
    EXPECT_EQ(loss_of_step(*first), losses[0]);
    EXPECT_EQ(loss_of_step(*first), losses[1]);
    first->evaluate();
    EXPECT_TRUE(first->is_unsaved());
    save(*first);
    EXPECT_FALSE(first->is_unsaved());
    loss_of_step(*first);  // which is lost
  }
  const auto second = start(other);
  EXPECT_EQ(second->step(), 2);
  EXPECT_EQ(loss_of_step(*second), losses[2]);
  EXPECT_EQ(loss_of_step(*second), losses[3]);
  EXPECT_TRUE(second->is_done());
  second->finish();
  const Json summary = Json::parse_file(second->files().summary());
  EXPECT_EQ(summary.at("steps").as_int(), 4);
  EXPECT_EQ(summary.at("best_step").as_int(), 2);
  EXPECT_EQ(summary.at("model").as_string(), second->files().model());
  EXPECT_TRUE(exists(second->files().model()));
}

TEST(Learner, OneThatDivergedLeavesNoResult) {
  const TinyInputs run(train_as_it_is, true);
  const auto learner = start(run);
  learner->stop("the loss is NaN", false);
  EXPECT_TRUE(learner->is_done());
  learner->finish();
  EXPECT_FALSE(exists(learner->files().model()));
  EXPECT_EQ(Json::parse_file(learner->files().summary()).at("stopped").as_string(), "the loss is NaN");
}

TEST(LearnerSummary, HasALossOrARewardOnlyOfAnEvaluation) {
  const TinyInputs run;
  make_directories(run.inputs->files.folder);
  write_file(run.inputs->files.metrics(), "");
  LearnerProgress progress{.step = 3, .tokens = 10, .train_seconds = 4, .last_loss = 2};
  const LearnerEnding ending{.accuracy_after = 0.5};
  const LoadedBatches rows(run.inputs->data.train, loader_options(run.inputs->config), run.inputs->ranks(),
                           run.inputs->data_ranks());
  const LearnerSummary summary{*run.inputs, progress, ending, rows, true};
  const RunCurves curves(run.inputs->files.metrics());
  const Json without = summary.json(curves);
  EXPECT_TRUE(without.at("eval_loss").is_null());
  EXPECT_EQ(without.find("eval_perplexity"), nullptr);
  EXPECT_EQ(without.at("tokens_per_second").as_double(), 2.5);
  EXPECT_TRUE(without.at("exact_match_before").is_null());
  EXPECT_EQ(without.at("exact_match_after").as_double(), 0.5);
  progress.keep_if_best(1);
  EXPECT_EQ(summary.json(curves).at("eval_loss").as_double(), 1);
  EXPECT_EQ(summary.json(curves).at("eval_perplexity").as_double(), 2.71828);
}

}  // namespace
}  // namespace temper::recipes
