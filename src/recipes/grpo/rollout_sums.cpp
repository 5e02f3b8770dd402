#include "recipes/grpo/rollout_sums.h"

#include <algorithm>
#include <cmath>

namespace temper::recipes {

void RolloutReport::add(const std::vector<SampledAnswer>& samples) {
  for (const SampledAnswer& sample : samples) {
    ++answers;
    truncated += sample.is_truncated();
    turns += static_cast<double>(sample.turns);
    tokens += static_cast<double>(sample.count_sampled());
    failed += !sample.error.empty();
    if (std::isnan(sample.reward)) continue;
    ++judged;
    reward += sample.reward;
    squared_reward += sample.reward * sample.reward;
    parts.resize(std::max(parts.size(), sample.parts.size()));
    for (size_t i = 0; i < sample.parts.size(); ++i) parts[i] += sample.parts[i];
  }
}

void RolloutReport::add(const Answers::Counts& counts) {
  sampled += static_cast<double>(counts.tokens);
  computed += static_cast<double>(counts.computed);
  found += static_cast<double>(counts.found);
  generating += counts.generating;
  judging += counts.judging;
}

void RolloutReport::sum_over(collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  std::vector<double> own{answers,        judged,  failed,   truncated, turns,      tokens, reward,
                          squared_reward, sampled, computed, found,     generating, judging};
  own.insert(own.end(), parts.begin(), parts.end());
  const auto all = ranks.gather("sums of a rollout", std::span<const double>(own));
  size_t longest = 0;
  for (const auto& one : all) longest = std::max(longest, one.size());
  std::vector<double> sums(longest);
  double slowest = 0, judge = 0;
  constexpr size_t kGenerating = 11, kJudging = 12, kParts = 13;
  for (const auto& one : all) {
    for (size_t i = 0; i < one.size(); ++i) sums[i] += one[i];
    slowest = std::max(slowest, one[kGenerating]);
    judge = std::max(judge, one[kJudging]);
  }
  size_t next = 0;
  for (double* const value : {&answers, &judged, &failed, &truncated, &turns, &tokens, &reward,
                              &squared_reward, &sampled, &computed, &found})
    *value = sums[next++];
  generating = slowest;
  judging = judge;
  parts.assign(sums.begin() + kParts, sums.end());
}

double RolloutReport::reward_deviation() const {
  if (judged < 2) return 0;
  const double mean = mean_reward();
  return std::sqrt(std::max(0.0, (squared_reward - judged * mean * mean) / (judged - 1)));
}

void CriticReport::write(Json::Object& values, reports::TensorBoardWriter::Scalars& scalars) const {
  const training::ValueResult sums = step.values.value_or(training::ValueResult{});
  const auto tokens = static_cast<double>(std::max<int64_t>(1, sums.tokens));
  const std::initializer_list<std::pair<std::string_view, double>> all{
      {"value_loss", step.loss},
      {"value_clipped", static_cast<double>(sums.clipped) / tokens},
      {"explained_variance", explained_variance},
      {"critic_grad_norm", step.grad_norm}};
  for (const auto& [name, value] : all) {
    values.emplace_back(name, value);
    scalars.emplace_back(fmt::format("train/{}", name), value);
  }
}

void RolloutReport::write(const std::vector<std::string>& reward_names, std::string_view key,
                          std::string_view tag, Json::Object& values,
                          reports::TensorBoardWriter::Scalars& scalars) const {
  const auto add = [&](std::string_view name, double value) {
    values.emplace_back(fmt::format("{}{}", key, name), value);
    scalars.emplace_back(fmt::format("{}{}", tag, name), value);
  };
  const auto by = [](double sum, double count) { return count == 0 ? 0 : sum / count; };
  add("reward", mean_reward());
  add("reward_deviation", reward_deviation());
  for (size_t i = 0; i < parts.size() && reward_names.size() > 1; ++i)
    add("reward_" + reward_names[i], by(parts[i], judged));
  add("answers", answers);
  add("answers_failed", failed);
  add("answer_tokens", by(tokens, answers));
  add("truncated", by(truncated, answers));
  if (turns > answers) add("turns", by(turns, answers));
  add("rollout_seconds", generating);
  add("rollout_tokens_per_second", by(sampled, generating));
  add("rollout_peak_memory_bytes", static_cast<double>(memory));
  add("prompt_tokens_found", found);
  add("reward_seconds", judging);
  if (groups == 0) return;
  add("groups_without_spread", static_cast<double>(groups_without_spread) / static_cast<double>(groups));
  add("rounds", static_cast<double>(rounds));
  add("scoring_seconds", scoring);
}

}  // namespace temper::recipes
