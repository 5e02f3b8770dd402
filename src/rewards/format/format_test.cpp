#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

const RewardConfig kFormat{.type = "format", .format = {.tags = {"think", "answer"}}};

TEST(Format, TagsOnceAndInTheirOrder) {
  const std::vector<std::pair<std::string, double>> cases{
      {"<think>a</think><answer>b</answer>", 1},
      {"So: <think>\na</think>\n\n<answer></answer> done", 1},
      {"<answer>b</answer><think>a</think>", 0},
      {"<think>a</think>", 0},
      {"<think>a<answer>b</answer></think>", 0},
      {"<think>a<answer></think>b</answer>", 0},
      {"<think>a</think><answer>b</answer><answer>c</answer>", 0},
      {"<think>a</think><think><answer>b</answer>", 0},
      {"<think>a</think><answer>b", 0},
      {"</think>a<think><answer>b</answer>", 0},
      {"", 0}};
  for (const auto& [text, reward] : cases) EXPECT_EQ(reward_of(kFormat, "{}", text), reward) << text;
}

TEST(Format, NothingButTheTags) {
  RewardConfig config = kFormat;
  config.format.only_tags = true;
  EXPECT_EQ(reward_of(config, "{}", " <think>a</think>\n<answer>b</answer>\n"), 1);
  EXPECT_EQ(reward_of(config, "{}", "So: <think>a</think><answer>b</answer>"), 0);
  EXPECT_EQ(reward_of(config, "{}", "<think>a</think> So: <answer>b</answer>"), 0);
  EXPECT_EQ(reward_of(config, "{}", "<think>a</think><answer>b</answer> done"), 0);
}

TEST(Format, ThePromptOpensTheFirstTag) {
  RewardConfig config = kFormat;
  config.format.opened_by_prompt = true;
  EXPECT_EQ(reward_of(config, "{}", "a</think><answer>b</answer>"), 1);
  EXPECT_EQ(reward_of(config, "{}", "<think>a</think><answer>b</answer>"), 0);
}

TEST(Format, Configuration) {
  EXPECT_EQ(config_error({.type = "format"}),
            "[grpo.rewards[0].tags] is missing; write for example [think, answer]");
  EXPECT_EQ(config_error({.type = "format", .format = {.tags = {"<think>"}}}),
            "[grpo.rewards[0].tags] '<think>' is not a tag; write its name without angle brackets, for "
            "example think");
  EXPECT_EQ(config_error({.type = "format", .format = {.tags = {"a", "b", "a"}}}),
            "[grpo.rewards[0].tags] has 'a' twice; an answer has each tag once");
}

}  // namespace
}  // namespace temper::rewards
