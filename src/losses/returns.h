#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "losses/policy.h"

namespace temper::losses {

// reward - β Σ (log p_old - log p_reference): the answer's reward less β times k1 of the whole answer
// (Ahmadian et al., "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback
// in LLMs", 2024, equation 3). Spans are [tokens].
double reward_less_kl(double reward, double beta, std::span<const double> old,
                      std::span<const double> reference);

// The same by token: -β times the estimate of the KL at each, and the answer's reward at the last (Ouyang et
// al., "Training language models to follow instructions with human feedback", 2022, equation 2, as Hu et al.,
// "REINFORCE++", 2025, share it among tokens; both with k1, which is log p_old - log p_reference). Spans are
// [tokens]; `reference` may be empty where β is 0. An Error "[returns] …" where an answer has no token, or
// spans are unequal.
struct KlInRewards {
  double beta = 0;
  KlEstimator kl = KlEstimator::kK1;
};
std::vector<double> token_rewards(double reward, const KlInRewards& kl, std::span<const double> old,
                                  std::span<const double> reference);

// In place: G_t = r_t + γ G_{t+1}.
void rewards_to_go(double gamma, std::span<double> rewards);

// In place: (value - mean) / (deviation + eps), unbiased, of the values that are not NaN; the others become
// 0, and all do where all are equal.
void normalize(double eps, std::span<double> values);

// One answer; a reward of NaN leaves it out: it counts in no statistic, and its advantages are 0.
struct RewardedAnswer {
  double reward = 0;
  std::span<const double> old, reference;  // [tokens]: log-probabilities, as token_rewards reads them
};

struct ReinforcePp {
  double beta = 0;  // of the KL in the rewards
  double gamma = 1;
  double eps = 1e-8;
};

// The advantages of all tokens, answer after answer: rewards to go of token_rewards, normalized over all
// tokens of the batch (Hu et al., "REINFORCE++: Stabilizing Critic-Free Policy Optimization", 2025).
std::vector<double> reinforce_pp(const ReinforcePp& options, std::span<const RewardedAnswer> batch);

struct Gae {
  double gamma = 1, lambda = 0.95;
};

// A_t = δ_t + γ λ A_{t+1} with δ_t = r_t + γ V_{t+1} - V_t, and the returns A_t + V_t that the values learn
// (Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", 2016,
// equation 16). `after` is the value behind the last token: 0 where the answer ended there, the value of what
// would follow where it was cut. All spans are [tokens].
void gae(const Gae& options, std::span<const double> rewards, std::span<const double> values, double after,
         std::span<double> advantages, std::span<double> returns);

struct ValueLoss {
  double loss = 0, gradient = 0;  // gradient: by the value
  bool clipped = false;           // so that the gradient is 0
};

// max((v - G)², (clip(v, v_old - c, v_old + c) - G)²) / 2 of one token, with its return G; c = 0: without the
// second (the value clipping of PPO's implementation, described by Engstrom et al., "Implementation Matters
// in Deep Policy Gradients", 2020, section 3).
ValueLoss value_loss(double value, double old_value, double target, double clip);

}  // namespace temper::losses
