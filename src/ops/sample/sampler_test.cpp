#include "ops/sample/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper::ops {
namespace {

// Probabilities 0.5, 0.3, 0.15, 0.05 by id.
const std::vector<float> kLogits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};

std::vector<double> frequencies(const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::vector<double> counts(kLogits.size());
  for (int i = 0; i < kDraws; ++i)
    counts[static_cast<size_t>(sample(kLogits, options, {}, static_cast<uint64_t>(i)).id)] += 1.0 / kDraws;
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, {}, 0).id, 1);
}

TEST(Sampler, FollowsTheProbabilities) {
  const auto found = frequencies({.temperature = 1});
  EXPECT_NEAR(found[0], 0.5, 0.02);
  EXPECT_NEAR(found[1], 0.3, 0.02);
  EXPECT_NEAR(found[3], 0.05, 0.01);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const auto two = frequencies({.temperature = 1, .top_k = 2});
  EXPECT_EQ(two[2] + two[3], 0);
  EXPECT_NEAR(two[0], 0.625, 0.02);
  // 0.5 + 0.3 reach 0.7, so two tokens stay.
  const auto nucleus = frequencies({.temperature = 1, .top_p = 0.7});
  EXPECT_EQ(nucleus[2] + nucleus[3], 0);
  EXPECT_NEAR(nucleus[1], 0.375, 0.02);
  EXPECT_NEAR(frequencies({.temperature = 1, .top_p = 0.4})[0], 1, 1e-9);
}

// Of the whole distribution, also where top-p cuts what top-k left; at the temperature of sampling.
TEST(Sampler, KnowsTheProbabilityThatStays) {
  const auto kept = [](const SamplingOptions& options) { return sample(kLogits, options, {}, 3).kept; };
  EXPECT_EQ(kept({.temperature = 1}), 0);
  EXPECT_EQ(kept({.temperature = 1, .top_k = 4, .top_p = 1}), 0);
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.5}), 0);  // greedy
  EXPECT_NEAR(kept({.temperature = 1, .top_k = 2}), std::log(0.8), 1e-7);
  EXPECT_NEAR(kept({.temperature = 1, .top_p = 0.7}), std::log(0.8), 1e-7);
  EXPECT_NEAR(kept({.temperature = 1, .top_p = 0.96}), 0, 1e-7);
  // Of 0.5, 0.3, 0.15 the first has more than half.
  EXPECT_NEAR(kept({.temperature = 1, .top_k = 3, .top_p = 0.52}), std::log(0.5), 1e-7);
  const double roots = std::sqrt(0.5) + std::sqrt(0.3) + std::sqrt(0.15) + std::sqrt(0.05);
  EXPECT_NEAR(kept({.temperature = 2, .top_k = 1}), std::log(std::sqrt(0.5) / roots), 1e-7);
}

TEST(Sampler, PenalizesWhatWasSeen) {
  const std::vector<float> logits{2, 1.5f, -1};
  EXPECT_EQ(sample(logits, {.repetition_penalty = 2}, std::vector<int32_t>{0, 0}, 0).id, 1);
}

TEST(Sampler, SeedAndPositionDecide) {
  const SamplingOptions options{.temperature = 1, .seed = 5};
  EXPECT_EQ(sample(kLogits, options, {}, 17).id, sample(kLogits, options, {}, 17).id);
  int differing = 0;
  for (uint64_t i = 0; i < 100; ++i)
    differing +=
        sample(kLogits, options, {}, i).id != sample(kLogits, {.temperature = 1, .seed = 6}, {}, i).id;
  EXPECT_GT(differing, 10);
}

}  // namespace
}  // namespace temper::ops
