#pragma once
#include <string>

#include "config/schema.h"
#include "losses/distillation.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// The keys of `distill` (docs/distillation.md).
struct DistillKeys {
  std::string teacher;
  losses::Divergence divergence = losses::Divergence::kForward;
  double temperature = 1;
  double cross_entropy = 0;
  double teacher_share = 0.5;
  int64_t top_k = 0;  // 0: all tokens
  std::string teacher_logits;
  bool logit_statistics = false;

  losses::Distillation to_loss() const { return {divergence, temperature, teacher_share, cross_entropy}; }
};
void describe(config::Schema& s, DistillKeys& c);

inline const DistillKeys& distill_keys(const RunConfig& config) {
  return config.recipe_keys.of<DistillKeys>();
}

}  // namespace temper::recipes
