#include "losses/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "losses/advantages.h"
#include "tests/support/errors.h"

namespace temper::losses {
namespace {

using Values = std::vector<double>;
const double kUnbounded = std::numeric_limits<double>::infinity();

Values values_in(const Json& list) {
  Values values;
  for (const Json& value : list.as_array()) values.push_back(value.as_double());
  return values;
}

double number(const Json& c, const char* key, double otherwise) {
  const Json* found = c.find(key);
  return found == nullptr ? otherwise : found->as_double();
}

std::string word(const Json& c, const char* key) {
  const Json* found = c.find(key);
  return found == nullptr ? "" : found->as_string();
}

Correction correction_of(const std::string& name) {
  if (name.empty()) return Correction::kNone;
  if (name == "token_truncate") return Correction::kTokenTruncated;
  if (name == "token_mask") return Correction::kTokenMasked;
  return name == "sequence_truncate" ? Correction::kSequenceTruncated : Correction::kSequenceMasked;
}

Policy policy_of(const Json& c) {
  Policy policy;
  policy.kind = word(c, "kind") == "clip" ? PolicyKind::kClip : PolicyKind::kCispo;
  policy.level = word(c, "level") == "sequence" ? RatioLevel::kSequence : RatioLevel::kToken;
  policy.mean = word(c, "mean") == "answers"  ? PolicyMean::kAnswers
                : word(c, "mean") == "tokens" ? PolicyMean::kTokens
                                              : PolicyMean::kConstant;
  policy.clip_low = number(c, "low", 0.2);
  policy.clip_high = number(c, "high", 0.2);
  policy.dual_clip = number(c, "dual", 0);
  policy.ratio_max = number(c, "ratio_max", 5);
  policy.beta = number(c, "beta", 0);
  policy.unbiased_kl = c.find("unbiased_kl") != nullptr;
  policy.correction = correction_of(word(c, "correction"));
  return policy;
}

// Answers of several tokens, flat, and what their loss comes to in `parts` parts of an update.
struct Batch {
  std::vector<size_t> tokens;
  Values now, old, reference, rollout, advantages, kept = {};
  PolicyUpdate update;

  PolicySums loss(const Policy& policy, Values& gradients, const std::vector<size_t>& part_of) const {
    gradients.assign(now.size(), 0);
    std::vector<PolicySums> parts(1 + *std::max_element(part_of.begin(), part_of.end()));
    for (size_t answer = 0, first = 0; answer < tokens.size(); first += tokens[answer++]) {
      const auto of = [&](const Values& all) { return std::span(all).subspan(first, tokens[answer]); };
      PolicyAnswer own{of(now), of(old), of(reference), of(rollout), of(advantages)};
      if (!kept.empty()) own.kept = of(kept);
      policy_loss(policy, own, update, std::span(gradients).subspan(first, tokens[answer]),
                  parts[part_of[answer]]);
    }
    PolicySums sums;
    for (const PolicySums& part : parts) sums.add(part);
    return sums;
  }
  PolicySums loss(const Policy& policy, Values& gradients) const {
    return loss(policy, gradients, std::vector<size_t>(tokens.size(), 0));
  }
};

Json goldens() {
  return Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/policies/losses.json");
}

Batch batch_of(const Json& file, AdvantageScale scale) {
  Batch batch{.tokens = {},
              .now = values_in(file.at("now")),
              .old = values_in(file.at("old")),
              .reference = values_in(file.at("reference")),
              .rollout = values_in(file.at("rollout")),
              .advantages = {},
              .update = {}};
  const Values of_answers = advantages({.scale = scale}, values_in(file.at("rewards")), 4).values;
  for (const Json& tokens : file.at("tokens").as_array()) {
    batch.advantages.insert(batch.advantages.end(), static_cast<size_t>(tokens.as_int()),
                            of_answers[batch.tokens.size()]);
    batch.tokens.push_back(static_cast<size_t>(tokens.as_int()));
  }
  batch.update = {.answers = static_cast<int64_t>(batch.tokens.size()),
                  .tokens = static_cast<int64_t>(batch.now.size()),
                  .most_tokens = file.at("longest_answer").as_int()};
  return batch;
}

AdvantageScale scale_of(const Json& c) {
  return word(c, "scale") == "group"   ? AdvantageScale::kGroup
         : word(c, "scale") == "batch" ? AdvantageScale::kBatch
                                       : AdvantageScale::kNone;
}

TEST(Policy, LossesAndGradientsAreThoseOfTheGoldens) {
  const Json file = goldens();
  ASSERT_EQ(file.at("cases").as_array().size(), 16u);
  for (const Json& c : file.at("cases").as_array()) {
    Values gradients;
    const PolicySums sums = batch_of(file, scale_of(c)).loss(policy_of(c), gradients);
    EXPECT_NEAR(sums.loss, c.at("loss").as_double(), 1e-12) << word(c, "name");
    const Values expected = values_in(c.at("gradient"));
    ASSERT_EQ(expected.size(), gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i)
      EXPECT_NEAR(gradients[i], expected[i], 1e-12) << word(c, "name") << " " << i;
  }
}

// Corrections divide by the probability among the tokens that a truncation kept; the gap between rollouts and
// training stays that of whole distributions.
TEST(Policy, CorrectionsKnowWhatTruncationKept) {
  const Json file = goldens();
  for (const Json& c : file.at("cases").as_array()) {
    const Policy policy = policy_of(c);
    Batch whole = batch_of(file, scale_of(c));
    Values kept, none, by_kept, by_rollout;
    for (size_t i = 0; i < whole.now.size(); ++i) kept.push_back(-0.07 * static_cast<double>(i % 5));
    Batch cut = whole;
    for (size_t i = 0; i < kept.size(); ++i) cut.rollout[i] -= kept[i];
    const PolicySums expected = cut.loss(policy, by_rollout), before = whole.loss(policy, none);
    whole.kept = kept;
    const PolicySums found = whole.loss(policy, by_kept);
    EXPECT_NEAR(found.loss, expected.loss, 1e-14) << word(c, "name");
    EXPECT_NEAR(found.correction, expected.correction, 1e-12) << word(c, "name");
    EXPECT_EQ(found.log_prob_gap, before.log_prob_gap);
    EXPECT_EQ(found.largest_gap, before.largest_gap);
    if (policy.correction != Correction::kNone) {
      EXPECT_GT(std::abs(found.correction - before.correction), 1e-3) << word(c, "name");
    }
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_NEAR(by_kept[i], by_rollout[i], 1e-14) << word(c, "name");
  }
}

// However the answers are divided among micro-batches and ranks: gradients to the bit, sums to their
// rounding.
TEST(Policy, DoesNotDependOnTheParts) {
  const Json file = goldens();
  for (const Json& c : file.at("cases").as_array()) {
    const Batch batch = batch_of(file, scale_of(c));
    Values whole, parts;
    const PolicySums expected = batch.loss(policy_of(c), whole);
    for (const size_t count : {2u, 3u, 5u, 12u}) {
      std::vector<size_t> part_of;
      for (size_t i = 0; i < batch.tokens.size(); ++i) part_of.push_back(i * 7 % count);
      const PolicySums found = batch.loss(policy_of(c), parts, part_of);
      EXPECT_EQ(parts, whole);
      EXPECT_NEAR(found.loss, expected.loss, 1e-14);
      EXPECT_NEAR(found.kl_loss, expected.kl_loss, 1e-14);
      EXPECT_NEAR(found.kl, expected.kl, 1e-12);
      EXPECT_NEAR(found.ratio, expected.ratio, 1e-12);
      EXPECT_NEAR(found.log_prob_gap, expected.log_prob_gap, 1e-12);
      EXPECT_NEAR(found.correction, expected.correction, 1e-12);
      EXPECT_EQ(found.answers, 12);
      EXPECT_EQ(found.tokens, expected.tokens);
      EXPECT_EQ(found.clipped_low, expected.clipped_low);
      EXPECT_EQ(found.clipped_high, expected.clipped_high);
      EXPECT_EQ(found.dual_clipped, expected.dual_clipped);
      EXPECT_EQ(found.corrected, expected.corrected);
      EXPECT_EQ(found.lowest_ratio, expected.lowest_ratio);
      EXPECT_EQ(found.highest_ratio, expected.highest_ratio);
      EXPECT_EQ(found.largest_gap, expected.largest_gap);
    }
  }
}

// A policy one step behind: the ratio is that of the two policies, not 1.
TEST(Policy, AStaleBatchHasTheRatioOfItsPolicies) {
  const Values now{std::log(0.6), std::log(0.11)}, old{std::log(0.5), std::log(0.1)}, advantages{2, -1};
  Values gradients(2);
  PolicySums sums;
  policy_loss({}, {now, old, {}, {}, advantages}, {.answers = 1, .tokens = 2}, gradients, sums);
  EXPECT_NEAR(gradients[0], -2 * 1.2 / 2, 1e-14);
  EXPECT_NEAR(gradients[1], 1.1 / 2, 1e-14);
  EXPECT_NEAR(sums.loss, (-2.4 + 1.1) / 2, 1e-14);
  EXPECT_NEAR(sums.ratio, 2.3, 1e-14);
  EXPECT_NEAR(sums.lowest_ratio, 1.1, 1e-14);
  EXPECT_NEAR(sums.highest_ratio, 1.2, 1e-14);
}

struct One {
  double loss = 0, gradient = 0;
  PolicySums sums;
};

One of_one(const Policy& policy, double now, double old, double advantage, double rollout = 0) {
  One out;
  policy_loss(policy, {{&now, 1}, {&old, 1}, {&old, 1}, {&rollout, 1}, {&advantage, 1}},
              {.answers = 1, .tokens = 1, .most_tokens = 1}, {&out.gradient, 1}, out.sums);
  out.loss = out.sums.loss;
  return out;
}

// With old = log 1 and a bound that is the ratio's own bits, the ratio lies on the edge: it is not clipped.
TEST(Policy, RatiosOnTheEdgeAreNotClipped) {
  for (const double now : {std::log(1.25), std::log(0.75)}) {
    const double ratio = std::exp(now), advantage = ratio > 1 ? 3 : -3;
    Policy policy{.clip_low = std::min(1.0, std::abs(1 - ratio)), .clip_high = std::abs(ratio - 1)};
    ASSERT_EQ(ratio > 1 ? 1 + policy.clip_high : 1 - policy.clip_low, ratio);
    const One edge = of_one(policy, now, 0, advantage);
    EXPECT_EQ(edge.gradient, -ratio * advantage);
    EXPECT_EQ(edge.loss, -ratio * advantage);
    EXPECT_EQ(edge.sums.clipped_low + edge.sums.clipped_high, 0);
    const double outside = now + (ratio > 1 ? 1e-9 : -1e-9);
    EXPECT_EQ(of_one(policy, outside, 0, advantage).gradient, 0);
    EXPECT_EQ(of_one(policy, outside, 0, advantage).loss, -ratio * advantage);
    EXPECT_NE(of_one(policy, outside, 0, -advantage).gradient, 0);  // where clipping would not be the worse
  }
  const double three = std::log(3.0);
  const Policy dual{.dual_clip = std::exp(three)};
  EXPECT_EQ(of_one(dual, three, 0, -1).gradient, std::exp(three));
  EXPECT_EQ(of_one(dual, three + 1e-9, 0, -1).gradient, 0);
  EXPECT_EQ(of_one(dual, three + 1e-9, 0, -1).sums.dual_clipped, 1);
  EXPECT_EQ(of_one(dual, three + 1e-9, 0, 1).sums.dual_clipped, 0);
}

TEST(Policy, AdvantageZeroAndMaskedTokensAddExactlyZeroWhateverTheRatio) {
  for (const PolicyKind kind : {PolicyKind::kClip, PolicyKind::kCispo})
    for (const RatioLevel level : {RatioLevel::kToken, RatioLevel::kSequence}) {
      const One flat = of_one({.kind = kind, .level = level, .ratio_max = kUnbounded}, 0, -2000, 0);
      EXPECT_EQ(flat.loss, 0);
      EXPECT_EQ(flat.gradient, 0);
      for (const Correction correction : {Correction::kTokenMasked, Correction::kSequenceMasked}) {
        const Policy policy{.kind = kind, .level = level, .ratio_max = kUnbounded, .correction = correction};
        const One masked = of_one(policy, 0, -2000, -1, -2001);
        EXPECT_EQ(masked.loss, 0);
        EXPECT_EQ(masked.gradient, 0);
        EXPECT_EQ(masked.sums.corrected, 1);
        EXPECT_EQ(masked.sums.correction, 0);
      }
    }
}

// A rank or a micro-batch may have no tokens of an answer, or no answer.
TEST(Policy, AnswersWithoutTokensCountAndAddNothing) {
  PolicySums sums;
  policy_loss({.beta = 1}, {}, {.answers = 2, .tokens = 0}, {}, sums);
  EXPECT_EQ(sums.answers, 1);
  EXPECT_EQ(sums.tokens, 0);
  EXPECT_EQ(sums.loss, 0);
  PolicySums whole = of_one({}, -1, -1.1, 1).sums;
  const double loss = whole.loss, lowest = whole.lowest_ratio;
  whole.add(PolicySums{});
  EXPECT_EQ(whole.loss, loss);
  EXPECT_EQ(whole.lowest_ratio, lowest);
}

// What is masked has no advantage; its KL to the reference stays.
TEST(Policy, ACorrectionLeavesTheKl) {
  const Policy policy{.beta = 0.5, .kl = KlEstimator::kK1, .correction = Correction::kTokenMasked};
  const One masked = of_one(policy, -1, -1.5, 2, 0);
  EXPECT_EQ(masked.gradient, 0.5);
  EXPECT_EQ(masked.loss, 0.5 * 0.5);
  EXPECT_EQ(masked.sums.kl_loss, masked.loss);
}

TEST(Policy, WeightsOnTheEdgesOfTheCorrectionStay) {
  for (const double gap : {std::log(2.0), std::log(0.5)}) {
    Policy policy{.correction = Correction::kTokenMasked,
                  .correction_cap = std::max(1.0, std::exp(gap)),
                  .correction_low = std::min(1.0, std::exp(gap))};
    EXPECT_EQ(of_one(policy, gap, gap, 1, 0).gradient, -std::exp(gap));
    EXPECT_EQ(of_one(policy, gap, gap, 1, gap > 0 ? -1e-9 : 1e-9).gradient, 0);
  }
}

TEST(Policy, RefusesWhatDoesNotFit) {
  const auto error = [](const Policy& policy) { return error_of([&] { of_one(policy, 0, 0, 1); }); };
  expect_has(error({.clip_low = 1.5}), "[policy] clip_low is 1.5");
  expect_has(error({.clip_high = std::nan("")}), "[policy] clip_high is nan");
  expect_has(error({.dual_clip = 0.5}), "[policy] dual_clip is 0.5");
  expect_has(error({.kind = PolicyKind::kCispo, .dual_clip = 3}), "only the clipped loss has one");
  expect_has(error({.ratio_max = 0}), "[policy] ratio_max is 0");
  expect_has(error({.beta = -1}), "[policy] beta is -1");
  expect_has(error({.correction_low = 3}), "[policy] correction_low is 3");
  const Values two(2), three(3);
  const auto misfit = [&](const Policy& policy, const PolicyAnswer& answer, const PolicyUpdate& update) {
    Values gradients(2);
    PolicySums sums;
    return error_of([&] { policy_loss(policy, answer, update, gradients, sums); });
  };
  const PolicyUpdate update{.answers = 1, .tokens = 2, .most_tokens = 1};
  expect_has(misfit({}, {two, three, {}, {}, two}, update), "3 values of `old` and 2 of `now`");
  expect_has(misfit({}, {two, two, {}, {}, {}}, update), "0 values of `advantages`");
  expect_has(misfit({.beta = 0.1}, {two, two, {}, {}, two}, update), "0 values of `reference`");
  expect_has(misfit({.correction = Correction::kTokenMasked}, {two, two, {}, {}, two}, update),
             "0 values of `rollout`");
  expect_has(misfit({}, {two, two, {}, {}, two}, {}), "0 answers of 0 tokens");
  expect_has(misfit({.mean = PolicyMean::kConstant}, {two, two, {}, {}, two}, update),
             "an answer has 2 tokens, more than the 1");
}

}  // namespace
}  // namespace temper::losses
