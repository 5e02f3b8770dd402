// The part of recipe grpo between a rollout and its updates: log-probabilities, advantages, rows.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "recipes/grpo/grpo_batches.h"
#include "training/objectives/policy.h"

namespace temper::recipes {

// An answer that was cut off still counts among the rewards of its group, unless the KL lowers these.
bool GrpoBatches::is_trained(const SampledAnswer& sample) const {
  return !std::isnan(sample.reward) &&
         !(sample.is_truncated() && keys_.filter.on_truncated == FilterKeys::OnTruncated::kDrop);
}

// Each update has the samples of as many groups. Answers that nothing is learnt from are left out.
void GrpoBatches::make_updates() {
  updates_.clear();
  const int64_t of_update = keys_.prompts_per_rollout / keys_.updates_per_rollout;
  for (int64_t update = 0; update < keys_.updates_per_rollout; ++update) {
    std::vector<SampledAnswer*> own;
    for (SampledAnswer& sample : samples_) {
      const auto place = std::find(groups_.begin(), groups_.end(), sample.group) - groups_.begin();
      if (place / of_update == update && is_trained(sample)) own.push_back(&sample);
    }
    updates_.push_back(
        rows_of(own, config_.data.max_length, config_.data.packing, keys_.engine.share_prompts));
  }
  warn_of_nothing_learnt();
  if (!scored_) score();
  set_advantages();
  for (SampleRows& update : updates_) update.fill();
}

// The gradient of an update without answers is 0. That of rewards which do not differ is, too, which is said
// once: late in a run it is no mistake.
void GrpoBatches::warn_of_nothing_learnt() {
  if (keys_.compares_answers() && report_.groups_without_spread == report_.groups && !said_alike_) {
    said_alike_ = true;
    log_warning(fmt::format(
        "rollout {}: the answers to a prompt are all worth the same, for each of its {} prompts, and their "
        "rewards "
        "teach nothing (groups_without_spread in metrics.jsonl; 'temper rollouts show' shows them)",
        rollout_, report_.groups));
  }
  std::vector<int64_t> tokens;
  for (const SampleRows& update : updates_) tokens.push_back(std::ssize(update.targets));
  ranks().sum("tokens that are learnt from", std::span<int64_t>(tokens));
  const auto empty = std::count(tokens.begin(), tokens.end(), 0);
  if (empty == 0) return;
  log_warning(fmt::format(
      "rollout {}: {} of its {} updates have nothing to learn from, since all their answers were cut off "
      "(grpo.filter.on_truncated: drop) or could not be judged (grpo.filter.on_reward_error: drop)",
      rollout_, empty, tokens.size()));
}

void GrpoBatches::take_scores(const std::vector<float>& scores, std::vector<float> Passage::*into,
                              SampleRows& rows) {
  invariant(scores.size() == rows.targets.size(), "every sampled token has a score");
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto& [sample, index, token] = rows.targets[i];
    Passage& passage = sample->passages[index];
    std::vector<float>& values = passage.*into;
    values.resize(passage.ids.size());
    values[token] = scores[i];
  }
}

// What the critic expects, before it learns from these answers.
void GrpoBatches::take_values(SampleRows& rows) {
  const training::TokenValues found = critic_->values(rows.rows);
  take_scores(found.before, &Passage::values, rows);
  for (size_t i = 0; i < rows.targets.size(); ++i) {  // the last one stays
    const auto& [sample, passage, token] = rows.targets[i];
    sample->passages[passage].value_behind = found.behind[i];
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
    return training::target_log_probs(by, adapter, rows.rows, keys_.sampling.temperature,
                                      config_.train.micro_batch_tokens);
  };
  for (SampleRows& update : updates_) {
    if (old) take_scores(log_probs(model, adapter_, update), &Passage::old_log_probs, update);
    if (critic_) take_values(update);
    if (!reference) continue;
    const layers::Decoder& by = other_reference_ ? other_reference_->decoder : model;
    take_scores(log_probs(by, nullptr, update), &Passage::reference_log_probs, update);
  }
  if (several) keep_scores();
  report_.scoring = seconds_now() - start;
}

void GrpoBatches::set_advantages() {
  const IsLearnt learnt = [&](const SampledAnswer& sample) { return is_trained(sample); };
  switch (keys_.preset().source) {
    case losses::AdvantageSource::kAnswers:
      return set_advantages_of_answers(keys_, ranks(), samples_, learnt);
    case losses::AdvantageSource::kReinforcePp:
      return set_advantages_of_tokens(keys_, ranks(), samples_, learnt);
    case losses::AdvantageSource::kGae:
      critic_report_.explained_variance = set_advantages_by_values(keys_, ranks(), samples_, learnt);
  }
}

}  // namespace temper::recipes
