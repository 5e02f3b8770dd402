#include "losses/policy_presets.h"

#include <string>
#include <vector>

#include "base/error.h"

namespace temper::losses {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

PolicyPreset rloo() {
  // REINFORCE: the paper found clipping unnecessary, and an answer's gradient is not divided by its length.
  return {.name = "rloo",
          .policy = {.mean = PolicyMean::kConstant, .clip_low = 1, .clip_high = kUnlimited},
          .advantages = {.baseline = Baseline::kLeaveOneOut, .scale = AdvantageScale::kNone},
          .kl_in_rewards = true};
}

std::vector<PolicyPreset> all_presets() {
  std::vector<PolicyPreset> all;
  all.push_back({.name = "grpo", .policy = {.beta = 0.04}});
  all.push_back({.name = "dr_grpo",
                 .policy = {.mean = PolicyMean::kConstant},
                 .advantages = {.scale = AdvantageScale::kNone}});
  all.push_back({.name = "dapo", .policy = {.mean = PolicyMean::kTokens, .clip_high = 0.28}});
  all.push_back(
      {.name = "gspo", .policy = {.level = RatioLevel::kSequence, .clip_low = 3e-4, .clip_high = 4e-4}});
  // The paper gives no bound; 5 is that of Khatri et al., "The Art of Scaling Reinforcement Learning Compute
  // for LLMs", 2025.
  all.push_back(
      {.name = "cispo", .policy = {.kind = PolicyKind::kCispo, .mean = PolicyMean::kTokens, .ratio_max = 5}});
  all.push_back({.name = "reinforce_pp",
                 .policy = {.mean = PolicyMean::kTokens},
                 .source = AdvantageSource::kReinforcePp,
                 .kl_in_rewards = true});
  all.push_back({.name = "reinforce_pp_baseline",
                 .policy = {.mean = PolicyMean::kTokens, .kl = KlEstimator::kK2},
                 .advantages = {.scale = AdvantageScale::kBatchDifferences}});
  all.push_back(rloo());
  all.push_back({.name = "ppo",
                 .policy = {.mean = PolicyMean::kTokens},
                 .source = AdvantageSource::kGae,
                 .kl_in_rewards = true});
  return all;
}

}  // namespace

const PolicyPreset& policy_preset(std::string_view name) {
  static const std::vector<PolicyPreset> all = all_presets();
  std::string names;
  for (const PolicyPreset& preset : all) {
    if (preset.name == name) return preset;
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  fail("[policy] there is no policy loss called '{}'; there are {}", name, names);
}

}  // namespace temper::losses
