#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

double of_tokens(const RewardConfig& config, int64_t tokens) {
  return verdict_on(config, "{}", Sample{.place = "", .row = nullptr, .text = "", .tokens = tokens}).reward;
}

TEST(Length, FallsWithinTheBuffer) {
  const RewardConfig config{.type = "length", .length = {.max_length = 100, .buffer = 20}};
  for (const auto& [tokens, reward] : std::vector<std::pair<int64_t, double>>{
           {0, 0}, {79, 0}, {80, 0}, {81, -0.05}, {90, -0.5}, {99, -0.95}, {100, -1}, {101, -1}, {5000, -1}})
    EXPECT_DOUBLE_EQ(of_tokens(config, tokens), reward) << tokens;
}

TEST(Length, DiffersFromATarget) {
  const RewardConfig config{.type = "length", .length = {.target = 50}};
  for (const auto& [tokens, reward] : std::vector<std::pair<int64_t, double>>{
           {50, 0}, {40, -0.2}, {60, -0.2}, {0, -1}, {100, -1}, {900, -1}})
    EXPECT_DOUBLE_EQ(of_tokens(config, tokens), reward) << tokens;
}

TEST(Length, Configuration) {
  EXPECT_EQ(config_error({.type = "length"}), "[grpo.rewards[0]] needs max_length and buffer, or a target");
  EXPECT_EQ(config_error({.type = "length", .length = {.max_length = 5}}),
            "[grpo.rewards[0]] needs max_length and buffer, or a target");
  EXPECT_EQ(config_error({.type = "length", .length = {.max_length = 5, .buffer = 6}}),
            "[grpo.rewards[0].buffer] is 6, more than max_length, 5");
  EXPECT_EQ(config_error({.type = "length", .length = {.buffer = 6, .target = 5}}),
            "[grpo.rewards[0]] has a target and buffer; keep the target, or max_length and buffer");
}

}  // namespace
}  // namespace temper::rewards
