#include "losses/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/json/json.h"
#include "tests/support/errors.h"

namespace temper::losses {
namespace {

const double kLeftOut = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;

std::vector<AdvantageOptions> all_options() {
  std::vector<AdvantageOptions> all;
  for (const Baseline baseline :
       {Baseline::kGroupMean, Baseline::kLeaveOneOut, Baseline::kBatchMean, Baseline::kNone})
    for (const AdvantageScale scale : {AdvantageScale::kGroup, AdvantageScale::kBatch, AdvantageScale::kNone,
                                       AdvantageScale::kBatchDifferences})
      all.push_back({.baseline = baseline, .scale = scale});
  return all;
}

Values numbers_of(const Json& list) {
  Values values;
  for (const Json& value : list.as_array()) values.push_back(value.as_double());
  return values;
}

TEST(Advantages, AreThoseOfTheGoldens) {
  const Json file = Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/policies/losses.json");
  for (const Json& c : file.at("advantages").as_array()) {
    const std::string scale = c.at("scale").as_string();
    const AdvantageOptions options{.scale = scale == "group"   ? AdvantageScale::kGroup
                                            : scale == "batch" ? AdvantageScale::kBatch
                                                               : AdvantageScale::kNone,
                                   .eps = c.at("eps").as_double()};
    const Advantages found = advantages(options, numbers_of(file.at("rewards")), 4);
    const Values expected = numbers_of(c.at("values"));
    ASSERT_EQ(found.values.size(), expected.size());
    EXPECT_EQ(found.groups_without_spread, 1);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found.values[i], expected[i], 1e-12) << scale << " " << i;
  }
}

TEST(Advantages, LeaveOneOutComparesWithTheMeanOfTheOthers) {
  const Advantages found = advantages({.baseline = Baseline::kLeaveOneOut, .scale = AdvantageScale::kNone},
                                      Values{1, 2, 6, 0, 4, 4}, 3);
  const Values expected{1 - 4.0, 2 - 3.5, 6 - 1.5, 0 - 4.0, 4 - 2.0, 4 - 2.0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.values[i], expected[i], 1e-14);
}

TEST(Advantages, OfTheBatch) {
  const Values rewards{1, 1, 3, 5};  // mean 2.5; deviation² = (2.25 + 2.25 + 0.25 + 6.25) / 3
  const double deviation = std::sqrt(11.0 / 3);
  const Advantages found =
      advantages({.baseline = Baseline::kBatchMean, .scale = AdvantageScale::kBatch, .eps = 0}, rewards, 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found.values[i], (rewards[i] - 2.5) / deviation, 1e-14);
  EXPECT_EQ(found.groups_without_spread, 0);
  // Differences from the groups' means are 0, 0, -1, 1.
  const Advantages differences =
      advantages({.scale = AdvantageScale::kBatchDifferences, .eps = 0}, rewards, 2);
  const Values expected{0, 0, -std::sqrt(1.5), std::sqrt(1.5)};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(differences.values[i], expected[i], 1e-14);
  EXPECT_EQ(differences.groups_without_spread, 1);
}

// 0.1 + 0.1 + 0.1 is not 3 · 0.1, so that a deviation is 1e-17 and not 0.
TEST(Advantages, EqualRewardsGiveExactlyZeroWhateverTheirRounding) {
  for (const AdvantageOptions& each : all_options()) {
    if (each.baseline == Baseline::kNone && each.scale == AdvantageScale::kNone) continue;
    AdvantageOptions options = each;
    options.eps = 0;
    const Advantages found = advantages(options, Values(6, 0.1), 3);
    EXPECT_EQ(found.values, Values(6, 0.0));
    EXPECT_EQ(found.groups_without_spread, 2);
  }
  // These differ, if only a little.
  const Advantages close = advantages({.eps = 0}, Values{0.1, 0.1 + 1e-12, 0.1}, 3);
  EXPECT_EQ(close.groups_without_spread, 0);
  EXPECT_GT(close.values[1], 0);
}

TEST(Advantages, GroupsOfOneRewardTrainNothingAndAreCounted) {
  for (const AdvantageScale scale : {AdvantageScale::kGroup, AdvantageScale::kBatch, AdvantageScale::kNone}) {
    const Advantages found = advantages({.baseline = Baseline::kLeaveOneOut, .scale = scale},
                                        Values{kLeftOut, 7, 1, 2, kLeftOut, kLeftOut}, 2);
    EXPECT_EQ(found.values[0], 0);
    EXPECT_EQ(found.values[1], 0);
    EXPECT_LT(found.values[2], 0);
    EXPECT_EQ(found.groups_without_spread, 2);
  }
}

// Whichever answers are left out, the others have the advantages that they have in a batch without them, and
// other groups' (except the batch's statistics) do not change by a bit.
TEST(Advantages, AnswersLeftOutChangeNoOther) {
  const Values rewards{0.3, 1, -2, 0.5, 0.25, 0.75, 4, 1};
  for (const AdvantageOptions& options : all_options()) {
    const bool batch = options.baseline == Baseline::kBatchMean || options.scale == AdvantageScale::kBatch ||
                       options.scale == AdvantageScale::kBatchDifferences;
    const Values whole = advantages(options, rewards, 4).values;
    for (unsigned dropped = 0; dropped < 15; ++dropped) {
      Values some = rewards, fewer;
      for (size_t i = 0; i < 4; ++i)
        if ((dropped >> i & 1) != 0)
          some[i] = kLeftOut;
        else
          fewer.push_back(rewards[i]);
      const Values found = advantages(options, some, 4).values;
      for (size_t i = 4; i < 8 && !batch; ++i) EXPECT_EQ(found[i], whole[i]);
      for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isfinite(found[i]));
      if (batch || fewer.size() < 2) continue;
      const Values alone = advantages(options, fewer, static_cast<int64_t>(fewer.size())).values;
      for (size_t i = 0, kept = 0; i < 4; ++i) EXPECT_EQ(found[i], std::isnan(some[i]) ? 0 : alone[kept++]);
    }
  }
}

// The batch's statistics, too, are those of the answers that are there.
TEST(Advantages, AnswersLeftOutAreInNoStatisticOfTheBatch) {
  for (const AdvantageScale scale : {AdvantageScale::kBatch, AdvantageScale::kBatchDifferences}) {
    const AdvantageOptions options{.baseline = Baseline::kBatchMean, .scale = scale};
    const Values whole = advantages(options, Values{1, 3, 7}, 1).values,
                 found = advantages(options, Values{kLeftOut, 1, 3, kLeftOut, 7, kLeftOut}, 2).values;
    EXPECT_EQ((Values{found[1], found[2], found[4]}), whole);
    EXPECT_EQ((Values{found[0], found[3], found[5]}), (Values(3, 0.0)));
  }
}

TEST(Advantages, RefusesWhatCannotTrain) {
  const auto error = [](const AdvantageOptions& options, const Values& rewards, int64_t per_group) {
    return error_of([&] { advantages(options, rewards, per_group); });
  };
  expect_has(error({}, Values(5, 1.0), 2), "[advantages] 5 answers are not whole groups of 2");
  expect_has(error({}, Values(2, 1.0), 0), "not whole groups of 0");
  expect_has(error({}, Values{1, 2}, 1), "groups have 1 answer");
  expect_has(error({}, Values{1, std::numeric_limits<double>::infinity()}, 2),
             "the reward of answer 1 is inf");
}

}  // namespace
}  // namespace temper::losses
