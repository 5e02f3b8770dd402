#include "recipes/learner/learner_folder.h"

#include <gtest/gtest.h>

#include "checkpoints/states/training_state.h"
#include "recipes/learner/tiny_run_test_support.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

void set_adapter(RunConfig& config) { config.adapters = {{.name = "a"}}; }

void save_state(const LearnerInputs& inputs) {
  checkpoints::StateWriter writer(inputs.files.states(), 1);
  writer.add_json("state.json", Json::Object{});
  writer.commit();
}

TEST(LearnerFolder, ARunWithAnotherConfigurationIsNotContinued) {
  TinyInputs run(set_adapter);
  const LearnerFolder folder(*run.inputs);
  folder.open("");
  EXPECT_FALSE(folder.has_states());
  run.inputs->config.train.optimizer.lr *= 2;
  EXPECT_NO_THROW(folder.check()) << "nothing is lost";
  save_state(*run.inputs);
  EXPECT_TRUE(folder.has_states());
  const std::string refusal = error_of([&] { folder.check(); });
  expect_has(refusal, "holds a run with another configuration");
  expect_has(refusal, "train.optimizer.lr");
  expect_has(refusal, "Give the adapter another name");
}

TEST(LearnerFolder, ARunThatMustNotResumeNeedsAnEmptyOne) {
  TinyInputs run;
  const LearnerFolder folder(*run.inputs);
  run.inputs->config.train.resume = Resume::kNever;
  EXPECT_NO_THROW(folder.check());
  save_state(*run.inputs);
  expect_has(error_of([&] { folder.check(); }), "holds a run already, and train.resume is never");
}

// States of older versions name neither.
TEST(LearnerFolder, AStateOfAnotherBaseOrOriginIsRefused) {
  TinyInputs run(set_adapter);
  run.setup->origin.base = "this";
  run.setup->origin.meaning = Json::Object{{"tokenizer.json", "1"}};
  const LearnerFolder folder(*run.inputs);
  folder.check_base(Json::Object{});
  folder.check_base(Json::Object{{"base", "this"}});
  expect_has(error_of([&] {
               folder.check_base(Json::Object{{"base", "that"}});
             }),
             "was trained on other weights than");
  folder.check_origin(Json::Object{});
  folder.check_origin(Json::Object{{"origin", run.setup->origin.meaning}});
  expect_has(error_of([&] {
               folder.check_origin(Json::Object{{"origin", Json::Object{{"tokenizer.json", "2"}}}});
             }),
             "started with another tokenizer.json");
}

}  // namespace
}  // namespace temper::recipes
