#pragma once
#include <memory>

#include "collectives/group.h"
#include "optimizers/adamw.h"
#include "weights/layout.h"

namespace temper::recipes {

// Of a mesh's ranks the groups that this one is in: those that share one optimizer state, and those that have
// the same part of it. Null where nothing is shared.
struct SharedState {
  SharedState(collectives::Group& ranks, const Mesh& mesh);
  optimizers::Sharing sharing() const { return {shard.get(), replicate.get()}; }

  std::unique_ptr<collectives::Group> shard, replicate;
};

}  // namespace temper::recipes
