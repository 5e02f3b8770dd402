#include <ctime>

#include "rewards/test_support.h"
#include "tests/support/sanitizers.h"

namespace temper::rewards {
namespace {

const RewardConfig kNumber{.type = "number"};

double judged(const std::string& answer, const std::string& text, const RewardConfig& config = kNumber) {
  return reward_of(config, Json(Json::Object{{"answer", answer}}).dump(), text);
}

TEST(NumberReward, ComparesExactly) {
  EXPECT_EQ(judged("0.1", "\\boxed{\\frac{1}{10}}"), 1);
  EXPECT_EQ(judged("0.3", "0.30000000000000004"), 0);
  EXPECT_EQ(judged("1/3", "0.3333333333333333333"), 0);
  EXPECT_EQ(judged("18", "6 * 3 = 18."), 1);
  EXPECT_EQ(judged("18", "18 is 6 times 3"), 0);
  EXPECT_EQ(judged("18", "\\boxed{18} is 6 times 3"), 1);
  EXPECT_EQ(judged("18", "#### 18\nThat is 6 times 3"), 1);
  EXPECT_EQ(judged("3", "\\boxed{3} or \\boxed{3"), 0);
  EXPECT_EQ(judged("3", "\\boxed{x} for 3"), 0);
  EXPECT_EQ(judged("6 * 12\n#### 72", "\\boxed{72}"), 1);
  EXPECT_EQ(judged("It is \\boxed{72}.", "72"), 1);
  const std::string huge(900, '7');
  EXPECT_EQ(judged(huge, huge), 1);
  EXPECT_EQ(judged(huge, huge.substr(1) + "8"), 0);
  EXPECT_EQ(judged("9007199254740993", "9007199254740992"), 0);
  EXPECT_EQ(judged("5", std::string(2000, '5')), 0);
  EXPECT_EQ(judged("1e500", "1" + std::string(500, '0')), 1);
}

TEST(NumberReward, Percentages) {
  EXPECT_EQ(judged("50%", "50\\%"), 1);
  EXPECT_EQ(judged("50%", "50"), 1);
  EXPECT_EQ(judged("50%", "0.5"), 1);
  EXPECT_EQ(judged("1/2", "50%"), 1);
  EXPECT_EQ(judged("50", "50%"), 1);
  EXPECT_EQ(judged("50%", "0.5%"), 0);
  EXPECT_EQ(judged("50", "0.5"), 0);
}

TEST(NumberReward, Tolerance) {
  RewardConfig config = kNumber;
  config.text.tolerance = 0.01;
  EXPECT_EQ(judged("0.1", "0.11", config), 1);
  EXPECT_EQ(judged("0.1", "0.09", config), 1);
  EXPECT_EQ(judged("0.1", "0.1100000000000000000001", config), 0);
  EXPECT_EQ(judged("-0.005", "0.005", config), 1);
  EXPECT_EQ(judged("1/3", "0.33", config), 1);
  config.text.tolerance = 1e-300;
  EXPECT_EQ(judged("0", "1e-300", config), 1);
  EXPECT_EQ(judged("0", "1.1e-300", config), 0);
}

TEST(NumberReward, RowsWithoutANumberAreErrors) {
  EXPECT_EQ(error_of_row(kNumber, R"({"answer": "about 5"})"),
            "the row's answer 'about 5' is not a number that reward number understands (docs/rewards.md)");
  EXPECT_EQ(error_of_row(kNumber, "{\"answer\": \"(1, 2)\"}"),
            "the row's answer '(1, 2)' is not a number that reward number understands (docs/rewards.md)");
  EXPECT_EQ(error_of_row(kNumber, R"({"answer": "\\boxed{5"})"),
            "the row's answer '\\boxed{5' is not a number that reward number understands (docs/rewards.md)");
  EXPECT_EQ(reward_of(kNumber, R"({"answer": 4})", "4.0"), 1);
  EXPECT_EQ(reward_of(kNumber, R"({"answer": 0.1})", "1/10"), 1);
  EXPECT_EQ(reward_of(kNumber, R"({"answer": ["3", 4]})", "4"), 1);
}

TEST(NumberReward, WithinATag) {
  RewardConfig config = kNumber;
  config.text.within = "answer";
  EXPECT_EQ(judged("4", "<answer>4</answer> 5", config), 1);
  EXPECT_EQ(judged("4", "4", config), 0);
}

// What a model repeats without end must not take long, of a processor that others use as well.
TEST(NumberReward, LongTexts) {
  const std::clock_t start = std::clock();
  for (const std::string part : {"1,", "1.", "-", "\\frac{1}", "\\boxed{", "{", "1 ", "$", "a", "9",
                                 "\\sqrt{2}", "1^", "####", "\\frac{", "\\boxed"}) {
    std::string text;
    while (text.size() < 200'000) text += part;
    judged("5", text);
    judged("5", "\\boxed{" + text + "}");
  }
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kSanitizerTakesMemory ? 400 : 20);
}

}  // namespace
}  // namespace temper::rewards
