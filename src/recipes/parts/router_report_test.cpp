#include "recipes/parts/router_report.h"

#include <gtest/gtest.h>

#include "recipes/parts/run_options.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

training::RouterLoad load(size_t layer, std::vector<int64_t> counts) {
  return {layer, std::move(counts), 1.5, 8, 0};
}

TEST(RouterReport, MetricsByLayer) {
  training::StepResult result;
  result.balance_loss = 0.02;
  result.routers = {load(1, {4, 4, 4, 4}), load(3, {16, 0, 0, 0})};
  Json::Object values;
  reports::TensorBoardWriter::Scalars scalars;
  add_routers(result, 0.01, values, scalars);
  EXPECT_EQ(
      Json(values).dump(),
      R"({"balance_loss": 2.0, "expert_load": [1.0, 4.0], "router_entropy": [1.5, 1.5], "idle_experts": [0, 3]})");
  EXPECT_EQ(scalars.size(), 7u);
  values.clear();
  add_routers({}, 0.01, values, scalars);
  EXPECT_TRUE(values.empty());
}

TEST(RouterReport, ExpertsWithoutTokensAreNoticedOnce) {
  IdleExperts idle;
  for (int step = 1; step <= 250; ++step) {
    const bool again = step > 120 && step < 130;  // expert 2 wakes up for a while
    const auto warnings = idle.after({load(1, {4, 4, 4, 4}), load(3, {16, 0, again ? 1 : 0, 5})});
    if (step == IdleExperts::kSteps) {
      ASSERT_EQ(warnings.size(), 1u);
      EXPECT_EQ(warnings[0],
                "layer 3: experts 1, 2 got no token for 100 steps; train.router.balance_loss or "
                "train.router.bias_rate spreads tokens more evenly");
    } else if (step == 229) {
      ASSERT_EQ(warnings.size(), 1u);
      EXPECT_EQ(warnings[0].substr(0, 43), "layer 3: expert 2 got no token for 100 step");
    } else {
      EXPECT_TRUE(warnings.empty()) << step;
    }
  }
}

TEST(RouterKeys, WhatTheModelHasNotIsRefused) {
  const auto error = [](const TinyModel& tiny, const RunConfig& config) {
    const auto model = tiny_model(tiny);
    return error_of([&] { trainer_options(config, model->decoder, 1); });
  };
  const TinyModel dense, plain{.type = "qwen3_moe"}, biased{.type = "deepseek_v3", .experts = true};
  RunConfig config;
  EXPECT_EQ(error(dense, config), "");
  config.train.router.balance_loss = 0.1;
  EXPECT_EQ(error(dense, config), "[train.router] is set, but the model has no routers; leave it out");
  EXPECT_EQ(error(plain, config), "");
  config.train.router.bias_rate = 0.5;
  EXPECT_EQ(error(biased, config), "");
  EXPECT_EQ(error(plain, config),
            "[train.router.bias_rate] is 0.5, but the model's routers have no correction bias; leave it out");
  config.adapters.emplace_back();
  EXPECT_EQ(error(biased, config),
            "[train.router.bias_rate] is 0.5, but a frozen model's biases stay as they are; leave it out");
  config.train.router.global_balance = true;
  EXPECT_EQ(
      error(biased, config),
      "[train.router.balance_scope] is global, which training of adapters does not have; use micro_batch, "
      "with train.micro_batch_tokens: 0 for the loads of the whole update");
}

TEST(RouterKeys, TheModelSaysTheFactorUnlessTheRunDoes) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  RunConfig config;
  EXPECT_EQ(trainer_options(config, model->decoder, 1).routers.balance_factor, 0);
  config.train.router.balance_loss = 0.25;
  EXPECT_EQ(trainer_options(config, model->decoder, 1).routers.balance_factor, 0.25);
}

}  // namespace
}  // namespace temper::recipes
