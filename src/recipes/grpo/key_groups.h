#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"
#include "losses/policy_presets.h"
#include "training/rollout_turn.h"

// The groups of keys below `grpo` that every loss reads (docs/grpo.md); critic_keys.h has the critic's. An
// omitted optional value is the one that the loss has.
namespace temper::recipes {

// How answers are sampled.
struct SamplingKeys {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  int64_t max_new_tokens = 256;
  std::vector<std::string> stop;

  // Whether answers are sampled from fewer tokens than the vocabulary has.
  bool truncates() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

// Which prompts and answers updates learn from.
struct FilterKeys {
  enum class OnRewardError { kStop, kDrop };
  enum class OnTruncated { kLearn, kDrop };

  bool dynamic_sampling = false;
  int64_t max_rounds = 10;
  OnRewardError on_reward_error = OnRewardError::kStop;
  OnTruncated on_truncated = OnTruncated::kLearn;
};

// What changes the policy loss that grpo.loss names.
struct PolicyKeys {
  std::optional<double> clip_low, clip_high, dual_clip, ratio_max;
  std::optional<losses::PolicyMean> mean;
  std::optional<losses::AdvantageScale> advantage_scale;
  double entropy = 0;
};

// The KL divergence from a reference model.
struct KlKeys {
  enum class In { kRewards, kLoss };

  std::optional<double> beta;
  std::optional<losses::KlEstimator> estimator;
  std::optional<In> in;
  bool unbiased = false;
  std::string reference;
};

// What is done where rollouts and training compute different probabilities.
struct CorrectionKeys {
  enum class LogProbs { kFull, kTruncated };

  losses::Correction type = losses::Correction::kNone;
  double cap = 2, low = 0.5;
  LogProbs rollout_log_probs = LogProbs::kFull;
  bool routing_replay = false;
  double max_log_prob_gap = 1;

  bool is_masked() const;
};

// How rollouts divide the model; where neither is given, as training does.
struct RolloutParallel {
  std::optional<int64_t> tensor, expert;

  bool any() const { return tensor || expert; }
};

// How rollouts and the rows of updates are computed: it changes the last bits of results at most.
struct EngineKeys {
  int64_t batch = 64;
  std::optional<int64_t> cache_tokens;
  std::vector<training::UpdateState> sleep;  // during rollouts
  std::optional<bool> batch_invariant;
  RolloutParallel parallel;
  bool check_sync = false;
  bool share_prompts = true;
};

void describe(config::Schema& s, SamplingKeys& c);
void describe(config::Schema& s, FilterKeys& c);
void describe(config::Schema& s, PolicyKeys& c);
void describe(config::Schema& s, KlKeys& c);
void describe(config::Schema& s, CorrectionKeys& c);
void describe(config::Schema& s, RolloutParallel& c);
void describe(config::Schema& s, EngineKeys& c);

}  // namespace temper::recipes
