#include "ops/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"

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

TEST(Sampler, MinPComparesWithTheLikeliest) {
  const auto three = frequencies({.temperature = 1, .min_p = 0.25});  // at least 0.125
  EXPECT_EQ(three[3], 0);
  EXPECT_NEAR(three[2], 0.15 / 0.95, 0.02);
  EXPECT_NEAR(frequencies({.temperature = 1, .min_p = 1})[0], 1, 1e-9);
  // Equals of the likeliest stay, however many.
  const std::vector<float> equal(7, 1.f);
  EXPECT_EQ(sample(equal, {.temperature = 0.3, .min_p = 1}, {}, 3).kept, 0);
}

// What is left of each token's probability by the processors of transformers, in its order and in double
// precision: TemperatureLogitsWarper, TopK, TopP, and MinP, which keeps what has at least min_p times the
// largest probability of a softmax over what is left.
std::vector<double> warped(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<double> scores(logits.begin(), logits.end());
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  const auto softmax = [&] {
    const double best = *std::max_element(scores.begin(), scores.end());
    std::vector<double> all;
    for (const double score : scores) all.push_back(std::exp(score - best));
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    for (double& each : all) each /= sum;
    return all;
  };
  for (double& score : scores) score /= options.temperature;
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < scores.size()) {
    std::vector<double> sorted = scores;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (double& score : scores)
      if (score < sorted[static_cast<size_t>(options.top_k) - 1]) score = kOut;
  }
  if (options.top_p < 1) {
    const std::vector<double> all = softmax();
    std::vector<size_t> ids(scores.size());
    std::iota(ids.begin(), ids.end(), size_t{0});
    std::sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
    double below = 0;
    for (const size_t id : ids)
      if ((below += all[id]) <= 1 - options.top_p && id != ids.back()) scores[id] = kOut;
  }
  if (options.min_p > 0) {
    const std::vector<double> all = softmax();
    const double least = options.min_p * *std::max_element(all.begin(), all.end());
    for (size_t i = 0; i < scores.size(); ++i)
      if (all[i] < least) scores[i] = kOut;
  }
  return softmax();
}

TEST(Sampler, KeepsWhatTransformersKeeps) {
  constexpr size_t kVocab = 300;
  const Random random(17, RandomPurpose::kSampling);
  int cut_by_min_p = 0;
  for (uint64_t draw = 0; draw < 40; ++draw) {
    std::vector<float> logits;
    for (size_t i = 0; i < kVocab; ++i)
      logits.push_back(static_cast<float>(12 * random.uniform(draw * kVocab + i)));
    for (const double temperature : {0.7, 1.0, 2.5})
      for (const int64_t top_k : {0, 20})
        for (const double top_p : {1.0, 0.8})
          for (const double min_p : {0.0, 1e-6, 0.02, 0.1, 0.5, 0.999}) {
            const SamplingOptions options{
                .temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .seed = draw};
            const std::vector<double> left = warped(logits, options),
                                      all = warped(logits, {.temperature = temperature});
            for (uint64_t position = 0; position < 5; ++position) {
              const NextToken found = sample(logits, options, {}, position);
              const auto id = static_cast<size_t>(found.id);
              ASSERT_GT(left.at(id), 0) << temperature << " " << top_k << " " << top_p << " " << min_p;
              ASSERT_NEAR(std::log(all[id]) - found.kept, std::log(left[id]), 1e-11)
                  << temperature << " " << top_k << " " << top_p << " " << min_p;
            }
            cut_by_min_p += min_p > 0 && std::count(left.begin(), left.end(), 0.0) > 0;
          }
  }
  EXPECT_GT(cut_by_min_p, 1000);
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
  EXPECT_NEAR(kept({.temperature = 1, .min_p = 0.5}), std::log(0.8), 1e-7);
  EXPECT_NEAR(kept({.temperature = 1, .top_p = 0.9, .min_p = 0.5}), std::log(0.8), 1e-7);
  EXPECT_NEAR(kept({.temperature = 1, .top_k = 1, .min_p = 0.5}), std::log(0.5), 1e-7);
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.01}), 0);
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
