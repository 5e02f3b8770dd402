#pragma once
#include <string_view>

#include "losses/advantages.h"
#include "losses/policy.h"

namespace temper::losses {

// Where the advantages come from: advantages() of whole answers, reinforce_pp() of tokens (returns.h), gae()
// of tokens with values that are learned.
enum class AdvantageSource { kAnswers, kReinforcePp, kGae };

// What is known by a name, as its paper gives it.
struct PolicyPreset {
  std::string_view name;
  Policy policy = {};
  AdvantageOptions advantages = {};  // where `source` is kAnswers
  AdvantageSource source = AdvantageSource::kAnswers;
  bool kl_in_rewards = false;  // the KL to the reference lowers rewards (returns.h); policy.beta is 0
};

// grpo, dr_grpo, dapo, gspo, cispo, reinforce_pp, reinforce_pp_baseline, rloo, ppo (docs/policy_losses.md).
// An Error "[policy] …" for another name lists them.
const PolicyPreset& policy_preset(std::string_view name);

}  // namespace temper::losses
