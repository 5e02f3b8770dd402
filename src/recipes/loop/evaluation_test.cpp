#include "recipes/loop/evaluation.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

RunConfig evaluated(int64_t every_steps) {
  RunConfig config;
  config.recipe = "sft";
  config.data.train = {{.path = "all.jsonl"}};
  config.eval.every_steps = every_steps;
  return config;
}

std::string refusal(const RunConfig& config) {
  return error_of([&] { check_evaluations(config); });
}

TEST(Evaluations, NeedRows) {
  RunConfig config = evaluated(20);
  expect_has(refusal(config),
             "[eval.every_steps] is 20, but neither data.eval nor data.eval_fraction gives rows");
  config.data.eval_fraction = 0.1;
  EXPECT_NO_THROW(check_evaluations(config));
  config.data.eval_fraction = 0;
  config.data.eval = {{.path = "held-out.jsonl"}};
  EXPECT_NO_THROW(check_evaluations(config));
  EXPECT_NO_THROW(check_evaluations(evaluated(0)));
}

// Of several adapters one is enough.
TEST(Evaluations, OfAdaptersNeedRowsOfOne) {
  RunConfig config = evaluated(20);
  config.data.eval = {{.path = "held-out.jsonl"}};
  config.adapters = {{.name = "a", .train = {{.path = "a.jsonl"}}},
                     {.name = "b", .train = {{.path = "b.jsonl"}}}};
  expect_has(refusal(config), "none of data.eval, data.eval_fraction and the adapters' eval gives rows");
  config.adapters[1].eval = {{.path = "b-held-out.jsonl"}};
  EXPECT_NO_THROW(check_evaluations(config));
}

TEST(Evaluations, LengthsOfAnswersNeedQuestions) {
  RunConfig config = evaluated(0);
  config.eval.max_new_tokens = 8;
  EXPECT_EQ(
      eval_key_without_effect(config),
      "[eval.max_new_tokens] is 8, and has no effect: eval.exact_match is 0, and no questions are answered");
  config.recipe = "grpo";
  expect_has(eval_key_without_effect(config), "evaluations by rewards read grpo.sampling.max_new_tokens");
  config.eval.exact_match = 10;
  EXPECT_EQ(eval_key_without_effect(config), "");
}

}  // namespace
}  // namespace temper::recipes
