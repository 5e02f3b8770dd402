#include "base/clock.h"
#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

TEST(PatternReward, SearchesOrMatchesAll) {
  RewardConfig config{.type = "pattern", .text = {.pattern = R"(\d+ apples?)"}};
  EXPECT_EQ(reward_of(config, "{}", "I have 5 apples."), 1);
  EXPECT_EQ(reward_of(config, "{}", "I have apples."), 0);
  EXPECT_EQ(reward_of(config, "{}", "5 APPLES"), 0);
  config.text.full = true;
  EXPECT_EQ(reward_of(config, "{}", "I have 5 apples."), 0);
  EXPECT_EQ(reward_of(config, "{}", "5 apples"), 1);
  EXPECT_EQ(reward_of(config, "{}", "5 apples\n"), 0);
  config.text.ignore_case = true;
  EXPECT_EQ(reward_of(config, "{}", "5 APPLE"), 1);
  config.text.within = "a";
  EXPECT_EQ(reward_of(config, "{}", "so <a>5 apples</a>"), 1);
  EXPECT_EQ(reward_of(config, "{}", "5 apples"), 0);
}

// With alternatives the whole text must be what one of them matches.
TEST(PatternReward, AllOfAlternatives) {
  const RewardConfig config{.type = "pattern", .text = {.pattern = "a|ab", .full = true}};
  EXPECT_EQ(reward_of(config, "{}", "ab"), 1);
  EXPECT_EQ(reward_of(config, "{}", "abc"), 0);
}

TEST(PatternReward, InvalidTextAndLongText) {
  EXPECT_EQ(reward_of({.type = "pattern", .text = {.pattern = "^.b$"}}, "{}",
                      "\xFF"
                      "b"),
            1);
  const std::string text(200'000, 'a');
  EXPECT_EQ(reward_of({.type = "pattern", .text = {.pattern = "^(a|b)*$"}}, "{}", text), 1);
  EXPECT_EQ(reward_of({.type = "pattern", .text = {.pattern = "(?s)^(?:.|\\n)*z"}}, "{}", text), 0);
}

TEST(PatternReward, ABacktrackingPatternEnds) {
  const RewardConfig config{.type = "pattern", .text = {.pattern = "^(a+)+$"}};
  const double start = seconds_now();
  const Verdict verdict = verdict_on(config, "{}", std::string(200, 'a') + "b");
  EXPECT_EQ(verdict.error,
            "pattern '^(a+)+$' could not be matched with a text of 201 bytes: match limit exceeded");
  EXPECT_LT(seconds_now() - start, 30);
}

TEST(PatternReward, Configuration) {
  EXPECT_EQ(config_error({.type = "pattern"}),
            "[grpo.rewards[0].pattern] is missing; type pattern needs a regular expression");
  EXPECT_EQ(config_error({.type = "pattern", .text = {.pattern = "a(b"}}),
            "[grpo.rewards[0].pattern] 'a(b' is not a regular expression: missing closing parenthesis, at "
            "character 4");
}

}  // namespace
}  // namespace temper::rewards
