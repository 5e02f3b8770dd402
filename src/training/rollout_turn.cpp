#include "training/rollout_turn.h"

#include <algorithm>

namespace temper::training {
namespace {

std::vector<Sleeper> sleepers(const std::vector<UpdateState>& asleep) {
  if (std::find(asleep.begin(), asleep.end(), UpdateState::kOptimizer) == asleep.end()) return {};
  return {{MemoryTag::kOptimizer, PauseMode::kKeep}};
}

}  // namespace

RolloutTurn::RolloutTurn(layers::ParameterStore& trained, const std::vector<UpdateState>& asleep)
    : turn_(trained.device(), "a rollout", sleepers(asleep)) {
  if (std::find(asleep.begin(), asleep.end(), UpdateState::kGradients) != asleep.end())
    trained.release_gradients();
}

}  // namespace temper::training
