#include "recipes/grpo/scorer.h"

#include "models/adapter.h"
#include "training/objectives/policy.h"

namespace temper::recipes {

Scorer::Scorer(const BatchInputs& inputs)
    : config_(inputs.config),
      keys_(grpo_keys(inputs.config)),
      model_(inputs.setup.model->decoder),
      adapter_(inputs.adapter) {
  const RunSetup& setup = inputs.setup;
  if (const auto folder = reference_model(config_)) other_reference_ = setup.others->frozen(*folder);
  if (const auto wish = critic_settings(config_)) {
    auto model = setup.others->trainable(wish->folder, true);
    auto adapter = wish->lora ? models::new_adapter(*model, *wish->lora,
                                                    static_cast<uint64_t>(config_.train.seed), "grpo.critic.")
                              : nullptr;
    critic_ = std::make_unique<Critic>(std::move(model), std::move(adapter), config_, *wish, *setup.groups);
  }
}

std::vector<float> Scorer::log_probs(const layers::Decoder& model, const layers::Adapter* adapter,
                                     const SampleRows& rows) const {
  return training::target_log_probs(model, adapter, rows.rows, keys_.sampling.temperature,
                                    config_.train.compute.micro_batch_tokens);
}

// Where one update follows, and the KL lowers no rewards, its own log-probabilities are the old ones.
void Scorer::score(const SampleRows& rows) const {
  const bool reference = keys_.kl_factor() > 0, in_rewards = keys_.preset().kl_in_rewards && reference;
  if (are_kept() || in_rewards)
    rows.take(log_probs(model_, adapter_, rows), &data::TokenColumns::old_log_probs);
  if (critic_) {
    const training::TokenValues found = critic_->values(rows.rows);
    rows.take(found.before, &data::TokenColumns::values);
    for (size_t i = 0; i < rows.targets.size(); ++i) {  // the last one stays
      const auto& [sample, passage, token] = rows.targets[i];
      sample->passages[passage].value_behind = found.behind[i];
    }
  }
  if (!reference) return;
  rows.take(log_probs(other_reference_ ? other_reference_->decoder : model_, nullptr, rows),
            &data::TokenColumns::reference_log_probs);
}

}  // namespace temper::recipes
