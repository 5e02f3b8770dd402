#include "recipes/router_report.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace temper::recipes
