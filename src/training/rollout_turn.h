#pragma once
#include <vector>

#include "device/memory_turn.h"
#include "layers/parameters/parameters.h"

namespace temper::training {

// What only updates need of a device. Activations are not among them: they are gone when an update
// ends, and the memory that they had serves rollouts.
enum class UpdateState {
  kOptimizer,  // moments and master weights: kept in the CPU's memory meanwhile
  kGradients,  // worth nothing after an update: forgotten, and made again by the next one
  // What networks between devices hold, which is not the pool's: whoever has the groups disconnects those
  // that rollouts do not need.
  kCommunication
};

// While it exists, a rollout has the memory of what sleeps. Updates, saves and whoever else reads the
// optimizer's state must wait until it ends; copies that are being written to a checkpoint are not concerned,
// since they lie elsewhere. All optimizers of one device sleep together.
class RolloutTurn {
 public:
  // `trained`: whose gradients sleep. Errors as MemoryTurn has them; all is awake then.
  RolloutTurn(layers::ParameterStore& trained, const std::vector<UpdateState>& asleep);

  void wake() { turn_.wake(); }  // an Error (kResources) where the rollout has left something behind
  int64_t kept_bytes() const { return turn_.kept_bytes(); }  // in the CPU's memory

 private:
  MemoryTurn turn_;
};

}  // namespace temper::training
