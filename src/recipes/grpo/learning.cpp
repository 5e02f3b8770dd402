// The part of recipe grpo between a rollout and its updates: log-probabilities, advantages, rows.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "losses/returns.h"
#include "recipes/grpo/grpo_batches.h"
#include "training/policy.h"

namespace temper::recipes {
namespace {

// An answer as the formulas of all ranks read it.
struct RewardedTokens {
  int64_t group, number;
  double reward;
  std::vector<double> old, reference;
};

std::vector<double> sampled_values(const SampledAnswer& sample, const std::vector<float> Passage::*of) {
  std::vector<double> values;
  for (const Passage& passage : sample.passages)
    for (size_t i = 0; i < passage.ids.size(); ++i)
      if (passage.sampled[i] != 0) values.push_back((passage.*of).empty() ? 0 : (passage.*of)[i]);
  return values;
}

// Those of all ranks, in the order of groups and numbers: sums do not depend on who had them.
std::vector<RewardedTokens> gather(collectives::Group& ranks, const std::vector<SampledAnswer>& samples,
                                   bool with_tokens) {
  std::vector<double> own;
  for (const SampledAnswer& sample : samples) {
    const std::vector<double> old = with_tokens ? sampled_values(sample, &Passage::old_log_probs)
                                                : std::vector<double>(),
                              reference = with_tokens ? sampled_values(sample, &Passage::reference_log_probs)
                                                      : std::vector<double>();
    own.insert(own.end(), {static_cast<double>(sample.group), static_cast<double>(sample.number),
                           sample.reward, static_cast<double>(old.size())});
    own.insert(own.end(), old.begin(), old.end());
    own.insert(own.end(), reference.begin(), reference.end());
  }
  std::vector<RewardedTokens> all;
  for (const std::vector<double>& one : ranks.gather("judged answers", std::span<const double>(own)))
    for (auto at = one.begin(); at != one.end();) {
      RewardedTokens& answer = all.emplace_back(
          RewardedTokens{static_cast<int64_t>(at[0]), static_cast<int64_t>(at[1]), at[2], {}, {}});
      const auto tokens = static_cast<std::ptrdiff_t>(at[3]);
      at += 4;
      answer.old.assign(at, at + tokens);
      answer.reference.assign(at + tokens, at + 2 * tokens);
      at += 2 * tokens;
    }
  std::sort(all.begin(), all.end(), [](const RewardedTokens& a, const RewardedTokens& b) {
    return std::pair(a.group, a.number) < std::pair(b.group, b.number);
  });
  return all;
}

}  // namespace

// Each update has the samples of as many groups. Answers that nothing is learnt from are left out.
void GrpoBatches::make_updates() {
  // What is left out still counts among the rewards of its group.
  const auto learns = [&](const SampledAnswer& sample) {
    return !std::isnan(sample.reward) &&
           !(sample.is_truncated() && keys_.on_truncated == GrpoKeys::OnTruncated::kDrop);
  };
  updates_.clear();
  const int64_t of_update = keys_.prompts_per_rollout / keys_.updates_per_rollout;
  for (int64_t update = 0; update < keys_.updates_per_rollout; ++update) {
    std::vector<SampledAnswer*> own;
    for (SampledAnswer& sample : samples_) {
      const auto place = std::find(groups_.begin(), groups_.end(), sample.group) - groups_.begin();
      if (place / of_update == update && learns(sample)) own.push_back(&sample);
    }
    updates_.push_back(rows_of(own, config_.data.max_length, config_.data.packing, keys_.share_prompts));
  }
  if (!scored_) score();
  set_advantages();
  for (SampleRows& update : updates_) update.fill();
}

void GrpoBatches::take_scores(const std::vector<float>& log_probs, std::vector<float> Passage::*into,
                              SampleRows& rows) {
  invariant(log_probs.size() == rows.targets.size(), "every sampled token has a log-probability");
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const auto& [sample, index, token] = rows.targets[i];
    Passage& passage = sample->passages[index];
    std::vector<float>& values = passage.*into;
    values.resize(passage.ids.size());
    values[token] = log_probs[i];
  }
}

// Log-probabilities by the weights that sampled, where updates move away from them, and by the reference.
void GrpoBatches::score() {
  const double start = seconds_now();
  const losses::PolicyPreset preset = keys_.preset();
  const bool in_rewards = preset.kl_in_rewards && keys_.kl_factor() > 0;
  const bool several = keys_.updates() > 1, old = several || in_rewards, reference = keys_.kl_factor() > 0;
  const layers::Decoder& model = setup_.model->decoder;
  const auto log_probs = [&](const layers::Decoder& by, const layers::Adapter* adapter, SampleRows& rows) {
    return training::target_log_probs(by, adapter, rows.rows, keys_.temperature,
                                      config_.train.micro_batch_tokens);
  };
  for (SampleRows& update : updates_) {
    if (old) take_scores(log_probs(model, adapter_, update), &Passage::old_log_probs, update);
    if (!reference) continue;
    const layers::Decoder& by = other_reference_ ? other_reference_->decoder : model;
    take_scores(log_probs(by, nullptr, update), &Passage::reference_log_probs, update);
  }
  if (several) keep_scores();
  report_.scoring = seconds_now() - start;
}

void GrpoBatches::set_advantages() {
  keys_.preset().source == losses::AdvantageSource::kReinforcePp ? set_advantages_of_tokens()
                                                                 : set_advantages_of_answers();
}

void GrpoBatches::set_advantages_of_answers() {
  const bool in_rewards = keys_.preset().kl_in_rewards && keys_.kl_factor() > 0;
  const std::vector<RewardedTokens> all = gather(ranks(), samples_, in_rewards);
  std::vector<double> rewards;
  for (const RewardedTokens& answer : all)
    rewards.push_back(
        in_rewards && !std::isnan(answer.reward)
            ? losses::reward_less_kl(answer.reward, keys_.kl_factor(), answer.old, answer.reference)
            : answer.reward);
  const losses::Advantages advantages =
      losses::advantages(keys_.preset().advantages, rewards, keys_.group_size);
  for (SampledAnswer& sample : samples_) {
    const auto at = std::lower_bound(all.begin(), all.end(), std::pair(sample.group, sample.number),
                                     [](const RewardedTokens& a, const std::pair<int64_t, int64_t>& b) {
                                       return std::pair(a.group, a.number) < b;
                                     });
    sample.advantage = advantages.values[static_cast<size_t>(at - all.begin())];
  }
}

void GrpoBatches::set_advantages_of_tokens() {
  const std::vector<RewardedTokens> all = gather(ranks(), samples_, true);
  std::vector<losses::RewardedAnswer> batch;
  for (const RewardedTokens& answer : all) batch.push_back({answer.reward, answer.old, answer.reference});
  const std::vector<double> values = losses::reinforce_pp({.beta = keys_.kl_factor()}, batch);
  auto next = values.begin();
  for (const RewardedTokens& answer : all) {
    const auto own = std::find_if(samples_.begin(), samples_.end(), [&](const SampledAnswer& sample) {
      return sample.group == answer.group && sample.number == answer.number;
    });
    if (own == samples_.end()) {
      next += std::ssize(answer.old);
      continue;
    }
    for (Passage& passage : own->passages) {
      passage.advantages.assign(passage.ids.size(), 0);
      for (size_t i = 0; i < passage.ids.size(); ++i)
        if (passage.sampled[i] != 0) passage.advantages[i] = static_cast<float>(*next++);
    }
  }
}

}  // namespace temper::recipes
