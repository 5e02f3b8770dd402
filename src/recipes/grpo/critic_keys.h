#pragma once
#include <optional>
#include <string>
#include <vector>

#include "losses/value_advantages.h"
#include "recipes/keys/critic_settings.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

struct GrpoKeys;

// The keys of `grpo.critic` (docs/ppo.md), which losses with learned values read.
struct CriticKeys {
  std::string path;
  std::optional<double> lr;
  std::optional<int64_t> rank;  // of an adapter, which is trained in place of the whole critic
  std::optional<double> alpha;
  std::vector<std::string> target_modules;
  int64_t warmup_updates = 0;
  double clip = 0.2;
  double gamma = 1, lambda = 0.95;
  bool bootstrap_truncated = false;
};
void describe(config::Schema& s, CriticKeys& c);

// Refuses keys of a critic where there is none, and what a run with one does not have.
void check_critic(const RunConfig& config, const GrpoKeys& keys);

// Nothing where the loss has no critic.
std::optional<CriticSettings> critic_settings(const RunConfig& config);

}  // namespace temper::recipes
