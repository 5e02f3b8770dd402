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
    counts[static_cast<size_t>(sample(kLogits, options, {}, static_cast<uint64_t>(i)))] += 1.0 / kDraws;
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, {}, 0), 1);
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

TEST(Sampler, PenalizesWhatWasSeen) {
  const std::vector<float> logits{2, 1.5f, -1};
  EXPECT_EQ(sample(logits, {.repetition_penalty = 2}, std::vector<int32_t>{0, 0}, 0), 1);
}

TEST(Sampler, SeedAndPositionDecide) {
  const SamplingOptions options{.temperature = 1, .seed = 5};
  EXPECT_EQ(sample(kLogits, options, {}, 17), sample(kLogits, options, {}, 17));
  int differing = 0;
  for (uint64_t i = 0; i < 100; ++i)
    differing += sample(kLogits, options, {}, i) != sample(kLogits, {.temperature = 1, .seed = 6}, {}, i);
  EXPECT_GT(differing, 10);
}

}  // namespace
}  // namespace temper::ops
