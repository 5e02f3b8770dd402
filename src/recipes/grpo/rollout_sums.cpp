#include "recipes/grpo/rollout_sums.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "collectives/fields.h"

namespace temper::recipes {

void AnswerSums::add(const std::vector<SampledAnswer>& samples) {
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

void WorkSums::add(const Answers::Counts& counts) {
  sampled += static_cast<double>(counts.tokens);
  computed += static_cast<double>(counts.computed);
  found += static_cast<double>(counts.found);
  generating += counts.generating;
  judging += counts.judging;
}

namespace {

// What ranks add up of a report; the rest is of all ranks already, or of this one's device.
struct Shared {
  std::array<double*, 11> sums;
  std::array<double*, 3> largest;
  std::vector<double>* parts;
};

Shared shared_of(RolloutReport& report) {
  auto& [answers, judged, failed, truncated, turns, tokens, reward, squared_reward, parts] = report.answers;
  auto& [sampled, computed, found, generating, judging, syncing] = report.work;
  return {{&answers, &judged, &failed, &truncated, &turns, &tokens, &reward, &squared_reward, &sampled,
           &computed, &found},
          {&generating, &judging, &syncing},
          &parts};
}

}  // namespace

void RolloutReport::add(const TurnCosts& turn) {
  memory = turn.memory;
  work.syncing = turn.syncing;
}

void RolloutReport::sum_over(collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  std::string own;
  const Shared mine = shared_of(*this);
  for (const double* value : mine.sums) collectives::put(own, *value);
  for (const double* value : mine.largest) collectives::put(own, *value);
  std::vector<double>& parts = *mine.parts;
  collectives::put(own, parts);
  for (double* value : mine.sums) *value = 0;
  for (double* value : mine.largest) *value = 0;
  parts.clear();
  for (std::string_view bytes : ranks.gather_objects("sums of a rollout", std::move(own))) {
    const auto next = [&] {
      double value = 0;
      collectives::take(bytes, value);
      return value;
    };
    for (double* value : mine.sums) *value += next();
    for (double* value : mine.largest) *value = std::max(*value, next());
    std::vector<double> other;
    collectives::take(bytes, other);
    parts.resize(std::max(parts.size(), other.size()));
    for (size_t i = 0; i < other.size(); ++i) parts[i] += other[i];
  }
}

double AnswerSums::reward_deviation() const {
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
  add("reward", answers.mean_reward());
  add("reward_deviation", answers.reward_deviation());
  for (size_t i = 0; i < answers.parts.size() && reward_names.size() > 1; ++i)
    add("reward_" + reward_names[i], by(answers.parts[i], answers.judged));
  add("answers", answers.answers);
  add("answers_failed", answers.failed);
  add("answer_tokens", by(answers.tokens, answers.answers));
  add("truncated", by(answers.truncated, answers.answers));
  if (answers.turns > answers.answers) add("turns", by(answers.turns, answers.answers));
  add("rollout_seconds", work.generating);
  add("rollout_tokens_per_second", by(work.sampled, work.generating));
  add("rollout_peak_memory_bytes", static_cast<double>(memory));
  add("prompt_tokens_found", work.found);
  add("reward_seconds", work.judging);
  add("sync_seconds", work.syncing);
  if (groups == 0) return;
  add("groups_without_spread", static_cast<double>(groups_without_spread) / static_cast<double>(groups));
  add("rounds", static_cast<double>(rounds));
  add("scoring_seconds", scoring);
}

}  // namespace temper::recipes
