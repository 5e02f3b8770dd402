#pragma once
#include <cstdint>
#include <limits>
#include <span>

namespace temper::losses {

// The loss of a policy that learns from advantages of its answers' tokens (docs/policy_losses.md has a table
// of the formulas and their papers). Of a token with ratio r = p_now / p_old and advantage A:
//   clip   -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A); with dual_clip c and A < 0 at most -c A
//          (Schulman et al., "Proximal Policy Optimization Algorithms", 2017, equation 7; Ye et al.,
//          "Mastering Complex Control in MOBA Games with Deep Reinforcement Learning", 2020, equation 5)
//   cispo  -min(r, ratio_max) A log p_now, where no gradient flows through the ratio (MiniMax, "MiniMax-M1",
//          2025, equations 4 and 5)
enum class PolicyKind { kClip, kCispo };

// kSequence: r is the geometric mean of the answer's ratios, for all its tokens (Zheng et al., "Group
// Sequence Policy Optimization", 2025, equation 7).
enum class RatioLevel { kToken, kSequence };

// What the tokens' losses are divided by: the answer's tokens and the update's answers; the update's tokens;
// the update's answers and the tokens of the longest answer allowed.
enum class PolicyMean { kAnswers, kTokens, kConstant };

// Estimates of KL(now, reference) from tokens of the policy, with x = log p_reference - log p_now: k1 = -x,
// k2 = x² / 2, k3 = e^x - x - 1 (Schulman, "Approximating KL Divergence", 2020).
enum class KlEstimator { kK1, kK2, kK3 };

// The estimate for one token, of x, and its derivative by log p_now.
struct KlEstimate {
  double value = 0, slope = 0;
};
KlEstimate kl_estimate(KlEstimator estimator, double x);

// The weight of a token's loss (not of its KL) for what the rollout engine computed differently from
// training: w = p_old / p_rollout, of the token or of the whole answer, truncated to correction_cap (Yao et
// al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025), or masked: 0 outside
// of [correction_low, correction_cap] (Ling Team, "Every Step Evolves", 2025: IcePop; of sequences: Liu et
// al., "When Speed Kills Stability", 2025).
enum class Correction { kNone, kTokenTruncated, kTokenMasked, kSequenceTruncated, kSequenceMasked };

struct Policy {
  PolicyKind kind = PolicyKind::kClip;
  RatioLevel level = RatioLevel::kToken;
  PolicyMean mean = PolicyMean::kAnswers;
  double clip_low = 0.2, clip_high = 0.2;
  double dual_clip = 0;  // c, above 1; 0: none
  double ratio_max = 5;  // of cispo: the largest ratio itself, 1 + ε of the paper
  double beta = 0;       // the weight of the KL to the reference
  KlEstimator kl = KlEstimator::kK3;
  // The KL times the token's ratio, with its gradient: unbiased, also where the tokens are the old policy's
  // (DeepSeek-AI, "DeepSeek-V3.2", 2025, section 3.1).
  bool unbiased_kl = false;
  Correction correction = Correction::kNone;
  double correction_cap = 2, correction_low = 0.5;
};

// An Error "[policy] …" for numbers that no formula has.
void check(const Policy& policy);

// One answer: log-probabilities, and advantages, of its tokens that have a loss; all spans are [tokens].
struct PolicyAnswer {
  std::span<const double> now;        // of the policy that learns
  std::span<const double> old;        // of the same weights as they were when the step began
  std::span<const double> reference;  // may be empty where beta is 0
  std::span<const double> rollout;    // as the engine reported them; may be empty without a correction
  std::span<const double> advantages;
  // The log of the probability mass that a truncation kept when the token was sampled (ops::NextToken).
  // Corrections divide by the probability among the tokens that stayed then, e^(rollout - kept). Empty: by
  // e^rollout.
  std::span<const double> kept = {};
};

// The counts of the whole update, whatever its micro-batches and ranks. Answers without a token, and such
// whose advantages are 0, count.
struct PolicyUpdate {
  int64_t answers = 0, tokens = 0;
  int64_t most_tokens = 0;  // of the longest answer allowed; only PolicyMean::kConstant needs it
};

// Sums over the answers of a part of an update; the sums of all parts are those of the update.
struct PolicySums {
  double loss = 0;     // what the update minimizes, divided by the counts of the update
  double kl_loss = 0;  // the part of it that is the KL's
  int64_t answers = 0, tokens = 0;
  // Over tokens; divided by `tokens` they are means.
  double kl = 0;            // as estimated, without beta and ratio; 0 without a reference
  double ratio = 0;         // of now to old, of the token or the answer as the level says
  double log_prob_gap = 0;  // |log p_old - log p_rollout|; 0 without the rollout's
  double correction = 0;    // the weights; 1 each where there is no correction
  // Tokens without a gradient of the loss: ratios too low for A < 0 and too high for A > 0 (cispo: above
  // ratio_max, which limits their gradient), ratios above dual_clip for A < 0, weights masked (or truncated).
  int64_t clipped_low = 0, clipped_high = 0, dual_clipped = 0, corrected = 0;
  // The extremes of tokens: lowest and highest ratio, largest |log p_old - log p_rollout|.
  double lowest_ratio = std::numeric_limits<double>::infinity();
  double highest_ratio = 0, largest_gap = 0;

  void add(const PolicySums& other);
};

// Adds an answer to `sums` and writes gradients[i] = d loss / d now[i]. A ratio on the edge of what is
// clipped is not clipped. A token with advantage 0 or with a masked weight adds exactly 0 to the loss (but
// for its KL), whatever its ratio; its gradient is exactly 0, too, unless the ratio is that of the answer,
// which depends on all tokens. An Error "[policy] …": spans of unequal lengths, no reference or rollout where
// the policy needs them, an update whose counts are less than the answer's.
void policy_loss(const Policy& policy, const PolicyAnswer& answer, const PolicyUpdate& update,
                 std::span<double> gradients, PolicySums& sums);

}  // namespace temper::losses
