#pragma once
#include <optional>
#include <string>
#include <vector>

#include "losses/policy_presets.h"
#include "recipes/grpo/critic_keys.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/rollout_memory.h"
#include "rewards/reward_config.h"
#include "training/rollout_turn.h"

namespace temper::recipes {

// How rollouts divide the model; where neither is given, as training does.
struct RolloutParallel {
  std::optional<int64_t> tensor, expert;

  bool any() const { return tensor || expert; }
};

// The keys of `grpo` (docs/grpo.md).
struct GrpoKeys {
  enum class OnRewardError { kStop, kDrop };
  enum class OnTruncated { kLearn, kDrop };
  enum class LogProbs { kFull, kTruncated };
  enum class KlIn { kRewards, kLoss };

  std::string loss = "grpo";  // a preset (losses/policy_presets.h), which the optional keys below change
  int64_t group_size = 8;
  int64_t prompts_per_rollout = 8;
  int64_t updates_per_rollout = 1;
  int64_t epochs = 1;
  int64_t max_new_tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::vector<std::string> stop;
  std::vector<rewards::RewardConfig> rewards;
  OnRewardError on_reward_error = OnRewardError::kStop;
  OnTruncated on_truncated = OnTruncated::kLearn;
  std::optional<double> beta;
  std::optional<losses::KlEstimator> kl;
  std::optional<KlIn> kl_in;
  bool unbiased_kl = false;
  std::string reference;
  std::optional<double> clip_low, clip_high, dual_clip, ratio_max;
  std::optional<losses::PolicyMean> mean;
  std::optional<losses::AdvantageScale> advantage_scale;
  losses::Correction correction = losses::Correction::kNone;
  LogProbs rollout_log_probs = LogProbs::kFull;
  double correction_cap = 2, correction_low = 0.5;
  double entropy = 0;
  bool dynamic_sampling = false;
  int64_t max_rounds = 10;
  double max_log_prob_gap = 1;
  bool share_prompts = true;
  bool routing_replay = false;
  int64_t batch = 64;
  std::optional<int64_t> cache_tokens;
  std::vector<training::UpdateState> sleep;  // during rollouts
  std::optional<bool> batch_invariant;
  RolloutParallel rollout_parallel;
  bool check_sync = false;
  CriticKeys critic;

  losses::PolicyPreset preset() const;        // with what the keys change
  bool compares_answers() const;              // to a prompt with one another
  losses::KlInRewards kl_in_rewards() const;  // of beta 0 where it is in the loss
  double kl_factor() const { return beta.value_or(losses::policy_preset(loss).policy.beta); }
  // Whether answers are sampled from fewer tokens than the vocabulary has.
  bool truncates() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  // Updates that follow a rollout: all of its answers `epochs` times.
  int64_t updates() const { return updates_per_rollout * epochs; }
};
void describe(config::Schema& s, RolloutParallel& c);
void describe(config::Schema& s, GrpoKeys& c);

inline const GrpoKeys& grpo_keys(const RunConfig& config) { return config.recipe_keys.of<GrpoKeys>(); }

// Of rollouts that divide the model in a way of their own.
std::optional<RolloutDegrees> degrees_of(const GrpoKeys& keys);

// Refuses what makes no sense, before anything is loaded.
void check_grpo(const RunConfig& config);

// The folder of the reference, where that is a second model in memory.
std::optional<std::string> reference_model(const RunConfig& config);

}  // namespace temper::recipes
