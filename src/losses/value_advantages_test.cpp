#include "losses/value_advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/json/json.h"

namespace temper::losses {
namespace {

using Values = std::vector<double>;

Values numbers(const Json& list) {
  Values values;
  for (const Json& value : list.as_array()) values.push_back(value.as_double());
  return values;
}

KlEstimator estimator(const std::string& name) {
  return name == "k1" ? KlEstimator::kK1 : name == "k2" ? KlEstimator::kK2 : KlEstimator::kK3;
}

void expect_near(std::span<const double> found, const Json& expected, const char* what) {
  const Values values = numbers(expected);
  ASSERT_EQ(found.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(found[i], values[i], 1e-6) << what << " " << i;
}

// An answer of a case.
struct Row {
  Row(const Json& one, size_t at) : json(one), index(at) {}
  Values of(const char* key) const { return numbers(json.at(key).as_array()[index]); }
  const Json& json;
  size_t index;
};

class PpoCases : public testing::TestWithParam<size_t> {
 protected:
  PpoCases()
      : file_(Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/policies/ppo.json")),
        json_(file_.at("cases").as_array().at(GetParam())) {
    for (size_t i = 0; i < json_.at("rewards").as_array().size(); ++i) {
      old_.push_back(Row(json_, i).of("old"));
      reference_.push_back(Row(json_, i).of("reference"));
      values_.push_back(Row(json_, i).of("values"));
      tokens_ += std::ssize(old_.back());
    }
    for (size_t i = 0; i < old_.size(); ++i)
      batch_.push_back({json_.at("rewards").as_array()[i].as_double(), old_[i], reference_[i], values_[i],
                        json_.at("after").as_array()[i].as_double()});
    options_ = {.kl = {json_.at("beta").as_double(), estimator(json_.at("kl").as_string())},
                .gae = {json_.at("gamma").as_double(), json_.at("lambda").as_double()}};
  }

  const Json file_;
  const Json& json_;
  std::vector<Values> old_, reference_, values_;
  std::vector<ValuedAnswer> batch_;
  ValueAdvantagesOptions options_;
  int64_t tokens_ = 0;
};

// tools/oracles/make_ppo_cases.py
TEST_P(PpoCases, AdvantagesAndReturnsAreThoseOfNumpy) {
  const ValueAdvantages found = value_advantages(options_, batch_);
  size_t first = 0;
  for (size_t i = 0; i < batch_.size(); ++i) {
    const size_t tokens = old_[i].size();
    expect_near(std::span(found.advantages).subspan(first, tokens), json_.at("advantages").as_array()[i],
                "advantage");
    expect_near(std::span(found.returns).subspan(first, tokens), json_.at("returns").as_array()[i], "return");
    first += tokens;
  }
  EXPECT_EQ(first, found.advantages.size());
  EXPECT_NEAR(found.explained_variance, json_.at("explained_variance").as_double(), 1e-6);
}

TEST_P(PpoCases, LossesAndGradientsAreThoseOfNumpy) {
  const double clip = json_.at("clip").as_double();
  const Policy policy{.mean = PolicyMean::kTokens, .clip_low = clip, .clip_high = clip};
  const PolicyUpdate update{std::ssize(batch_), tokens_};
  PolicySums sums;
  double value_loss_sum = 0;
  for (size_t i = 0; i < batch_.size(); ++i) {
    const Row row(json_, i);
    const Values now = row.of("now"), advantages = row.of("advantages"), updated = row.of("new_values"),
                 returns = row.of("returns");
    Values gradients(now.size()), by_values;
    policy_loss(policy, {now, old_[i], {}, {}, advantages}, update, gradients, sums);
    expect_near(gradients, json_.at("policy_gradients").as_array()[i], "gradient");
    for (size_t t = 0; t < updated.size(); ++t) {
      const ValueLoss found =
          value_loss(updated[t], values_[i][t], returns[t], json_.at("value_clip").as_double());
      value_loss_sum += found.loss / static_cast<double>(tokens_);
      by_values.push_back(found.gradient / static_cast<double>(tokens_));
    }
    expect_near(by_values, json_.at("value_gradients").as_array()[i], "gradient of a value");
  }
  EXPECT_NEAR(sums.loss, json_.at("policy_loss").as_double(), 1e-6);
  EXPECT_NEAR(value_loss_sum, json_.at("value_loss").as_double(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Cases, PpoCases, testing::Range<size_t>(0, 5));

TEST(ValueAdvantages, AnswersThatAreLeftOutCountInNothing) {
  const Values a{-1, -2, -0.5}, b{-3, -1}, values{0.2, 0.1, -0.3}, garbage{1e9, -1e9};
  const double none = std::numeric_limits<double>::quiet_NaN();
  const ValuedAnswer with[] = {{1, a, {}, values}, {none, b, {}, garbage}, {0, a, {}, values}},
                     without[] = {{1, a, {}, values}, {0, a, {}, values}};
  const ValueAdvantages found = value_advantages({}, with), expected = value_advantages({}, without);
  EXPECT_EQ(found.explained_variance, expected.explained_variance);
  for (const auto& [all, some] :
       {std::pair(found.advantages, expected.advantages), std::pair(found.returns, expected.returns)}) {
    ASSERT_EQ(all.size(), 8u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(all[i], some[i]);
      EXPECT_EQ(all[5 + i], some[3 + i]);
    }
    EXPECT_EQ(all[3], 0);
    EXPECT_EQ(all[4], 0);
  }
}

// Perfect values explain all; where nothing differs there is nothing to explain.
TEST(ValueAdvantages, ExplainedVarianceHasItsEnds) {
  const Values one{-1}, high{3}, low{-2}, zero{0};
  const ValuedAnswer perfect[] = {{3, one, {}, high}, {-2, one, {}, low}},
                     blind[] = {{3, one, {}, zero}, {-2, one, {}, zero}},
                     equal[] = {{3, one, {}, zero}, {3, one, {}, zero}};
  EXPECT_EQ(value_advantages({}, perfect).explained_variance, 1);
  EXPECT_EQ(value_advantages({}, blind).explained_variance, 0);
  EXPECT_EQ(value_advantages({}, equal).explained_variance, 0);
  EXPECT_EQ(value_advantages({}, equal).advantages, Values(2, 0.0));
}

}  // namespace
}  // namespace temper::losses
