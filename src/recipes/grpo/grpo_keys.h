#pragma once
#include <optional>
#include <string>
#include <vector>

#include "losses/policy_presets.h"
#include "recipes/grpo/critic_keys.h"
#include "recipes/grpo/key_groups.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/rollout_memory.h"
#include "rewards/reward_config.h"

namespace temper::recipes {

// The keys of `grpo` (docs/grpo.md).
struct GrpoKeys {
  std::string loss =
      "grpo";  // a preset (losses/policy_presets.h), which `policy`, `kl` and `correction` change
  int64_t group_size = 8;
  int64_t prompts_per_rollout = 8;
  int64_t updates_per_rollout = 1;
  int64_t epochs = 1;
  std::vector<rewards::RewardConfig> rewards;
  SamplingKeys sampling;
  FilterKeys filter;
  PolicyKeys policy;
  KlKeys kl;
  CorrectionKeys correction;
  EngineKeys engine;
  CriticKeys critic;

  losses::PolicyPreset preset() const;        // with what the keys change
  bool compares_answers() const;              // to a prompt with one another
  losses::KlInRewards kl_in_rewards() const;  // of beta 0 where it is in the loss
  double kl_factor() const { return kl.beta.value_or(losses::policy_preset(loss).policy.beta); }
  // Updates that follow a rollout: all of its answers `epochs` times.
  int64_t updates() const { return updates_per_rollout * epochs; }
};
void describe(config::Schema& s, GrpoKeys& c);

inline const GrpoKeys& grpo_keys(const RunConfig& config) { return config.recipe_keys.of<GrpoKeys>(); }

// Of rollouts that divide the model in a way of their own.
std::optional<RolloutDegrees> degrees_of(const GrpoKeys& keys);

// Refuses what makes no sense, before anything is loaded.
void check_grpo(const RunConfig& config);

// The folder of the reference, where that is a second model in memory.
std::optional<std::string> reference_model(const RunConfig& config);

}  // namespace temper::recipes
