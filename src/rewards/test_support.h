#pragma once
#include <gtest/gtest.h>

#include <string>

#include "rewards/reward.h"
#include "tests/support/errors.h"

// Judging single answers in tests.
namespace temper::rewards {

inline constexpr const char* kKey = "grpo.rewards[0]";

inline Verdict verdict_on(const RewardConfig& config, const std::string& row, const Sample& answer) {
  const Json json = Json::parse(row, "row");
  Sample sample = answer;
  sample.row = &json;
  const auto reward = make_reward(config, kKey);
  reward->submit(7, sample);
  const auto verdicts = reward->take(kForEver);
  EXPECT_EQ(verdicts.size(), 1u);
  if (verdicts.size() != 1) return {.error = "no verdict"};
  EXPECT_EQ(verdicts[0].first, 7);
  return verdicts[0].second;
}

inline Verdict verdict_on(const RewardConfig& config, const std::string& row, const std::string& text) {
  return verdict_on(config, row, Sample{.place = "rows.jsonl:1", .row = nullptr, .text = text});
}

inline double reward_of(const RewardConfig& config, const std::string& row, const std::string& text) {
  const Verdict verdict = verdict_on(config, row, text);
  EXPECT_EQ(verdict.error, "");
  EXPECT_TRUE(verdict.next.is_null());
  return verdict.reward;
}

inline std::string error_of_row(const RewardConfig& config, const std::string& row) {
  return verdict_on(config, row, std::string("4")).error;
}

inline std::string config_error(const RewardConfig& config) {
  return error_of([&] { check(config, kKey); });
}

}  // namespace temper::rewards
