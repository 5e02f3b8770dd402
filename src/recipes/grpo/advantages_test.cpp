#include "recipes/grpo/advantages.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "collectives/launch.h"
#include "collectives/local/local.h"

namespace temper::recipes {
namespace {

// Five sampled tokens in two passages; 7s are an environment's, whose numbers say nothing.
SampledAnswer judged_answer(int64_t group, int64_t number, double reward, float garbage) {
  SampledAnswer sample{0, group, number, 0};
  sample.reward = reward;
  sample.finish = "stop";
  const auto value = [&](int i) { return 0.3f * std::sin(static_cast<float>(5 * group + 3 * number + i)); };
  sample.passages.push_back({.prompt = {1, 2},
                             .ids = {3, 4, 7, 7, 5},
                             .sampled = {1, 1, 0, 0, 1},
                             .columns = {.old_log_probs = {-1, -2, garbage, garbage, -0.5},
                                         .reference_log_probs = {-1.5, -1, -garbage, garbage, -1},
                                         .values = {value(0), value(1), garbage, garbage, value(2)}}});
  sample.passages.push_back({.prompt = {1, 3, 4, 7},
                             .ids = {6, 8},
                             .sampled = {1, 1},
                             .columns = {.old_log_probs = {-0.25, -3},
                                         .reference_log_probs = {-0.5, -2},
                                         .values = {value(3), value(4)}},
                             .value_behind = 0.75f});
  return sample;
}

std::vector<SampledAnswer> judged_answers(float garbage) {
  return {judged_answer(0, 0, 1, garbage), judged_answer(0, 1, 0, garbage), judged_answer(1, 0, 0.5, garbage),
          judged_answer(1, 1, -1, garbage)};
}

GrpoKeys ppo_keys(double gamma, double lambda) {
  GrpoKeys keys;
  keys.loss = "ppo";
  keys.kl.beta = 0.1;
  keys.critic.gamma = gamma;
  keys.critic.lambda = lambda;
  return keys;
}

const auto kEvery = [](const SampledAnswer&) { return true; };

std::vector<float> every_value(const std::vector<SampledAnswer>& samples,
                               std::vector<float> data::TokenColumns::*of) {
  std::vector<float> all;
  for (const SampledAnswer& sample : samples)
    for (const Passage& passage : sample.passages)
      all.insert(all.end(), (passage.columns.*of).begin(), (passage.columns.*of).end());
  return all;
}

// The returns of an answer by hand: the surprises of its five sampled tokens, and nothing of the environment.
TEST(GrpoAdvantages, TokensOfEnvironmentsAreSkipped) {
  const GrpoKeys keys = ppo_keys(0.9, 0.7);
  std::vector<SampledAnswer> samples = judged_answers(100);
  set_advantages_by_values(keys, collectives::alone(), samples, kEvery);
  for (const SampledAnswer& sample : samples) {
    const Passage &one = sample.passages[0], &two = sample.passages[1];
    const double values[] = {one.columns.values[0], one.columns.values[1], one.columns.values[4],
                             two.columns.values[0], two.columns.values[1], 0};
    const double kl[] = {0.5, -1, 0.5, 0.25, -1};  // log p_old - log p_reference
    double advantage = 0;
    std::vector<double> returns(5);
    for (int i = 4; i >= 0; --i) {
      const double reward = -0.1 * kl[i] + (i == 4 ? sample.reward : 0);
      advantage = reward + 0.9 * values[i + 1] - values[i] + 0.9 * 0.7 * advantage;
      returns[static_cast<size_t>(i)] = advantage + values[i];
    }
    const float found[] = {one.columns.returns[0], one.columns.returns[1], one.columns.returns[4],
                           two.columns.returns[0], two.columns.returns[1]};
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(found[i], returns[i], 1e-6);
    for (const size_t silent : {2, 3}) {
      EXPECT_EQ(one.columns.advantages[silent], 0);
      EXPECT_EQ(one.columns.returns[silent], 0);
    }
  }
  std::vector<SampledAnswer> others = judged_answers(-3e8f);
  set_advantages_by_values(keys, collectives::alone(), others, kEvery);
  EXPECT_EQ(every_value(others, &data::TokenColumns::advantages),
            every_value(samples, &data::TokenColumns::advantages));
  // Whitened over all sampled tokens.
  double sum = 0, squares = 0;
  for (const float value : every_value(samples, &data::TokenColumns::advantages))
    sum += value, squares += value * value;
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_NEAR(squares / 19, 1, 1e-5);
}

TEST(GrpoAdvantages, ATruncatedAnswerExpectsMoreIfAsked) {
  GrpoKeys keys = ppo_keys(0.9, 0.7);
  const auto last_return = [&](const char* finish) {
    std::vector<SampledAnswer> samples = judged_answers(0);
    samples[0].finish = finish;
    set_advantages_by_values(keys, collectives::alone(), samples, kEvery);
    return samples[0].passages[1].columns.returns[1];
  };
  EXPECT_EQ(last_return("length"), last_return("stop"));
  keys.critic.bootstrap_truncated = true;
  EXPECT_NEAR(last_return("length"), last_return("stop") + 0.9 * 0.75, 1e-6);
  EXPECT_NEAR(last_return("context"), last_return("stop") + 0.9 * 0.75, 1e-6);
}

// Three answers to a prompt; the second one was cut off and has no scores.
std::vector<SampledAnswer> answers_with_one_cut_off() {
  std::vector<SampledAnswer> samples{judged_answer(0, 0, 1, 0), judged_answer(0, 1, 0.25, 0),
                                     judged_answer(0, 2, -0.5, 0)};
  samples[2].passages[0].columns.old_log_probs[1] = -4;
  samples[1].finish = "length";
  for (Passage& passage : samples[1].passages)
    passage.columns.old_log_probs = passage.columns.reference_log_probs = {};
  return samples;
}

const auto kWhole = [](const SampledAnswer& sample) { return !sample.is_truncated(); };

// R - β Σ (log p_old - log p_reference).
constexpr double kKlOfFirst = 0.5 - 1 + 0.5 + 0.25 - 1, kKlOfThird = 0.5 - 3 + 0.5 + 0.25 - 1;

TEST(GrpoAdvantages, WhatIsNotLearntIsInNoGroupWhereTheKlLowersRewards) {
  GrpoKeys keys;
  keys.loss = "rloo";
  keys.kl.beta = 0.1;
  keys.group_size = 3;
  std::vector<SampledAnswer> samples = answers_with_one_cut_off();
  set_advantages_of_answers(keys, collectives::alone(), samples, kWhole);
  const double first = 1 - 0.1 * kKlOfFirst, third = -0.5 - 0.1 * kKlOfThird;
  EXPECT_NEAR(samples[0].advantage, first - third, 1e-12);  // less the mean of the others
  EXPECT_NEAR(samples[2].advantage, third - first, 1e-12);
  EXPECT_EQ(samples[1].advantage, 0);
  // Where rewards are as they were judged, it counts as any other.
  keys.kl.beta = 0;
  set_advantages_of_answers(keys, collectives::alone(), samples, kWhole);
  EXPECT_NEAR(samples[0].advantage, 1 - (0.25 - 0.5) / 2, 1e-12);
}

TEST(GrpoAdvantages, WhatIsNotLearntIsInNoMeanOfTokens) {
  GrpoKeys keys;
  keys.loss = "reinforce_pp";
  keys.kl.beta = 0.1;
  keys.group_size = 3;
  std::vector<SampledAnswer> samples = answers_with_one_cut_off();
  set_advantages_of_tokens(keys, collectives::alone(), samples, kWhole);
  std::vector<double> to_go;
  for (const auto& [reward, kl] : {std::pair{1.0, std::array{0.5, -1.0, 0.5, 0.25, -1.0}},
                                   {-0.5, std::array{0.5, -3.0, 0.5, 0.25, -1.0}}})
    for (size_t i = 0; i < kl.size(); ++i)
      to_go.push_back(reward -
                      0.1 * std::accumulate(kl.begin() + static_cast<std::ptrdiff_t>(i), kl.end(), 0.0));
  const double count = static_cast<double>(to_go.size()),
               mean = std::accumulate(to_go.begin(), to_go.end(), 0.0) / count;
  double squares = 0;
  for (const double value : to_go) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  size_t next = 0;
  for (const size_t index : {size_t{0}, size_t{2}})
    for (const Passage& passage : samples[index].passages)
      for (size_t i = 0; i < passage.ids.size(); ++i) {
        if (passage.sampled[i] == 0) continue;
        EXPECT_NEAR(passage.columns.advantages[i], (to_go[next++] - mean) / deviation, 1e-6)
            << index << " " << i;
      }
}

// Each rank has every other group: an answer is compared with those to its own prompt all the same.
TEST(GrpoAdvantages, AnswersToAPromptStayTogetherBetweenRanks) {
  GrpoKeys keys;
  keys.loss = "rloo";
  keys.kl.beta = 0;
  keys.group_size = 2;
  const auto of_rank = [](int rank, int ranks) {
    std::vector<SampledAnswer> samples;
    for (int64_t group = rank; group < 4; group += ranks)
      for (int64_t number = 0; number < 2; ++number)
        samples.push_back(judged_answer(group, number, static_cast<double>(group * group + number), 0));
    return samples;
  };
  std::vector<SampledAnswer> one = of_rank(0, 1);
  set_advantages_of_answers(keys, collectives::alone(), one, kEvery);
  for (const SampledAnswer& sample : one) EXPECT_EQ(sample.advantage, sample.number == 0 ? -1 : 1);
  collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& ranks) {
    std::vector<SampledAnswer> own = of_rank(ranks.rank(), 2);
    set_advantages_of_answers(keys, ranks, own, kEvery);
    for (const SampledAnswer& sample : own) EXPECT_EQ(sample.advantage, sample.number == 0 ? -1 : 1);
  });
}

TEST(GrpoAdvantages, RanksGetWhatOneRankWould) {
  const GrpoKeys keys = ppo_keys(1, 0.95);
  std::vector<SampledAnswer> one = judged_answers(0);
  const double explained = set_advantages_by_values(keys, collectives::alone(), one, kEvery);
  collectives::launch("threads", {.ranks = 3}, [&](collectives::Group& ranks) {
    std::vector<SampledAnswer> own;  // the third rank has none
    for (const SampledAnswer& sample : judged_answers(0))
      if (sample.group == ranks.rank()) own.push_back(sample);
    EXPECT_EQ(set_advantages_by_values(keys, ranks, own, kEvery), explained);
    if (ranks.rank() == 2) return;
    const size_t first = static_cast<size_t>(ranks.rank()) * 2;
    const std::vector<SampledAnswer> expected(one.begin() + static_cast<std::ptrdiff_t>(first),
                                              one.begin() + static_cast<std::ptrdiff_t>(first + 2));
    EXPECT_EQ(every_value(own, &data::TokenColumns::advantages),
              every_value(expected, &data::TokenColumns::advantages));
    EXPECT_EQ(every_value(own, &data::TokenColumns::returns),
              every_value(expected, &data::TokenColumns::returns));
  });
}

}  // namespace
}  // namespace temper::recipes
