#include "losses/returns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "losses/spread.h"

namespace temper::losses {
namespace {

void check_equal(const char* what, size_t found, size_t tokens) {
  if (found != tokens)
    fail("[returns] an answer of {} tokens has {} values of `{}`; each token needs one", tokens, found, what);
}

}  // namespace

double reward_less_kl(double reward, double beta, std::span<const double> old,
                      std::span<const double> reference) {
  if (beta == 0) return reward;
  check_equal("reference", reference.size(), old.size());
  double divergence = 0;
  for (size_t i = 0; i < old.size(); ++i) divergence += old[i] - reference[i];
  return reward - beta * divergence;
}

std::vector<double> token_rewards(double reward, const KlInRewards& kl, std::span<const double> old,
                                  std::span<const double> reference) {
  if (old.empty()) fail("[returns] an answer has no tokens that its reward could belong to; leave it out");
  std::vector<double> rewards(old.size(), 0.0);
  if (kl.beta != 0) {
    check_equal("reference", reference.size(), old.size());
    for (size_t i = 0; i < old.size(); ++i)
      rewards[i] = -kl.beta * kl_estimate(kl.kl, reference[i] - old[i]).value;
  }
  rewards.back() += reward;
  return rewards;
}

void rewards_to_go(double gamma, std::span<double> rewards) {
  for (size_t i = rewards.size(); i-- > 1;) rewards[i - 1] += gamma * rewards[i];
}

void normalize(double eps, std::span<double> values) {
  const Spread spread = spread_of(values);
  for (double& value : values)
    value = std::isnan(value) || !spread.any ? 0 : (value - spread.mean) / (spread.deviation + eps);
}

std::vector<double> reinforce_pp(const ReinforcePp& options, std::span<const RewardedAnswer> batch) {
  std::vector<double> all;
  for (const RewardedAnswer& answer : batch) {
    if (std::isnan(answer.reward)) {
      all.insert(all.end(), answer.old.size(), std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    std::vector<double> rewards = token_rewards(answer.reward, {options.beta}, answer.old, answer.reference);
    rewards_to_go(options.gamma, rewards);
    all.insert(all.end(), rewards.begin(), rewards.end());
  }
  normalize(options.eps, all);
  return all;
}

void gae(const Gae& options, std::span<const double> rewards, std::span<const double> values, double after,
         std::span<double> advantages, std::span<double> returns) {
  check_equal("values", values.size(), rewards.size());
  check_equal("advantages", advantages.size(), rewards.size());
  check_equal("returns", returns.size(), rewards.size());
  double next_value = after, next_advantage = 0;
  for (size_t i = rewards.size(); i-- > 0;) {
    const double surprise = rewards[i] + options.gamma * next_value - values[i];
    next_advantage = surprise + options.gamma * options.lambda * next_advantage;
    next_value = values[i];
    advantages[i] = next_advantage;
    returns[i] = next_advantage + values[i];
  }
}

ValueLoss value_loss(double value, double old_value, double target, double clip) {
  const double off = value - target;
  if (clip > 0) {
    const double clipped = std::clamp(value, old_value - clip, old_value + clip) - target;
    if (clipped * clipped > off * off) return {clipped * clipped / 2, 0, true};
  }
  return {off * off / 2, off, false};
}

}  // namespace temper::losses
