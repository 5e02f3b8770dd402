#include "recipes/grpo/advantages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>

#include "collectives/fields.h"
#include "losses/value_advantages.h"

namespace temper::recipes {
namespace {

using Column = data::TokenColumns::Column;

// An answer as the formulas of all ranks read it; lists are of its sampled tokens, or empty: unread.
struct RewardedTokens {
  int64_t group = 0, number = 0;
  double reward = 0, after = 0;
  std::vector<double> old, reference, values;
};

std::vector<double> sampled_values(const SampledAnswer& sample, const Column data::TokenColumns::*of) {
  std::vector<double> values;
  for (const Passage& passage : sample.passages) {
    const Column& column = passage.columns.*of;
    for (size_t i = 0; i < passage.ids.size(); ++i)
      if (passage.sampled[i] != 0) values.push_back(column.empty() ? 0 : column[i]);
  }
  return values;
}

RewardedTokens of_answer(const SampledAnswer& sample) {
  return {sample.group, sample.number, sample.reward, 0, {}, {}, {}};
}

// An answer that is not trained on has no scores: it counts in nothing.
RewardedTokens with_log_probs(const SampledAnswer& sample, const IsLearnt& is_trained) {
  RewardedTokens own = of_answer(sample);
  own.old = sampled_values(sample, &data::TokenColumns::old_log_probs);
  own.reference = sampled_values(sample, &data::TokenColumns::reference_log_probs);
  if (!is_trained(sample)) own.reward = std::numeric_limits<double>::quiet_NaN();
  return own;
}

template <class Answer>
auto fields_of(Answer& answer) {
  auto& [group, number, reward, after, old, reference, values] = answer;
  return std::tie(group, number, reward, after, old, reference, values);
}

// Those of all ranks, in the order of groups and numbers: sums do not depend on who had them.
std::vector<RewardedTokens> gather(collectives::Group& ranks, const std::vector<RewardedTokens>& samples) {
  std::string own;
  for (const RewardedTokens& sample : samples) collectives::put_fields(own, fields_of(sample));
  std::vector<RewardedTokens> all;
  for (std::string_view bytes : ranks.gather_objects("judged answers", std::move(own)))
    while (!bytes.empty()) collectives::take_fields(bytes, fields_of(all.emplace_back()));
  std::sort(all.begin(), all.end(), [](const RewardedTokens& a, const RewardedTokens& b) {
    return std::pair(a.group, a.number) < std::pair(b.group, b.number);
  });
  return all;
}

std::vector<RewardedTokens> gather(collectives::Group& ranks, const std::vector<SampledAnswer>& samples,
                                   const std::function<RewardedTokens(const SampledAnswer&)>& read) {
  std::vector<RewardedTokens> own;
  for (const SampledAnswer& sample : samples) own.push_back(read(sample));
  return gather(ranks, own);
}

// Numbers of all answers' tokens, answer after answer, at the sampled tokens of this rank's.
void give_back(const std::vector<RewardedTokens>& all, const std::vector<double>& values,
               Column data::TokenColumns::*into, std::vector<SampledAnswer>& samples) {
  auto next = values.begin();
  for (const RewardedTokens& answer : all) {
    const auto own = std::find_if(samples.begin(), samples.end(), [&](const SampledAnswer& sample) {
      return sample.group == answer.group && sample.number == answer.number;
    });
    if (own == samples.end()) {
      next += std::ssize(answer.old);
      continue;
    }
    for (Passage& passage : own->passages) {
      (passage.columns.*into).assign(passage.ids.size(), 0);
      for (size_t i = 0; i < passage.ids.size(); ++i)
        if (passage.sampled[i] != 0) (passage.columns.*into)[i] = static_cast<float>(*next++);
    }
  }
}

}  // namespace

void set_advantages_of_answers(const GrpoKeys& keys, collectives::Group& ranks,
                               std::vector<SampledAnswer>& samples, const IsLearnt& is_trained) {
  const bool in_rewards = keys.preset().kl_in_rewards && keys.kl_factor() > 0;
  const std::vector<RewardedTokens> all = gather(ranks, samples, [&](const SampledAnswer& sample) {
    return in_rewards ? with_log_probs(sample, is_trained) : of_answer(sample);
  });
  std::vector<double> rewards;
  for (const RewardedTokens& answer : all)
    rewards.push_back(
        in_rewards && !std::isnan(answer.reward)
            ? losses::reward_less_kl(answer.reward, keys.kl_factor(), answer.old, answer.reference)
            : answer.reward);
  const losses::Advantages advantages =
      losses::advantages(keys.preset().advantages, rewards, keys.group_size);
  for (SampledAnswer& sample : samples) {
    const auto at = std::lower_bound(all.begin(), all.end(), std::pair(sample.group, sample.number),
                                     [](const RewardedTokens& a, const std::pair<int64_t, int64_t>& b) {
                                       return std::pair(a.group, a.number) < b;
                                     });
    sample.advantage = advantages.values[static_cast<size_t>(at - all.begin())];
  }
}

void set_advantages_of_tokens(const GrpoKeys& keys, collectives::Group& ranks,
                              std::vector<SampledAnswer>& samples, const IsLearnt& is_trained) {
  const std::vector<RewardedTokens> all =
      gather(ranks, samples, [&](const SampledAnswer& sample) { return with_log_probs(sample, is_trained); });
  std::vector<losses::RewardedAnswer> batch;
  for (const RewardedTokens& answer : all) batch.push_back({answer.reward, answer.old, answer.reference});
  give_back(all, losses::reinforce_pp({.beta = keys.kl_factor()}, batch), &data::TokenColumns::advantages,
            samples);
}

double set_advantages_by_values(const GrpoKeys& keys, collectives::Group& ranks,
                                std::vector<SampledAnswer>& samples, const IsLearnt& is_trained) {
  const std::vector<RewardedTokens> all = gather(ranks, samples, [&](const SampledAnswer& sample) {
    RewardedTokens own = with_log_probs(sample, is_trained);
    own.values = sampled_values(sample, &data::TokenColumns::values);
    if (keys.critic.bootstrap_truncated && sample.is_truncated())
      own.after = sample.passages.back().value_behind;
    return own;
  });
  std::vector<losses::ValuedAnswer> batch;
  for (const RewardedTokens& answer : all)
    batch.push_back({answer.reward, answer.old, answer.reference, answer.values, answer.after});
  const losses::ValueAdvantages found = losses::value_advantages(
      {.kl = keys.kl_in_rewards(), .gae = {keys.critic.gamma, keys.critic.lambda}}, batch);
  give_back(all, found.advantages, &data::TokenColumns::advantages, samples);
  give_back(all, found.returns, &data::TokenColumns::returns, samples);
  return found.explained_variance;
}

double set_advantages(const GrpoKeys& keys, collectives::Group& ranks, std::vector<SampledAnswer>& samples,
                      const IsLearnt& is_trained) {
  switch (keys.preset().source) {
    case losses::AdvantageSource::kAnswers:
      set_advantages_of_answers(keys, ranks, samples, is_trained);
      return 0;
    case losses::AdvantageSource::kReinforcePp:
      set_advantages_of_tokens(keys, ranks, samples, is_trained);
      return 0;
    case losses::AdvantageSource::kGae:
      break;
  }
  return set_advantages_by_values(keys, ranks, samples, is_trained);
}

}  // namespace temper::recipes
