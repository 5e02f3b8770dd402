#include "recipes/shared_state.h"

namespace temper::recipes {

SharedState::SharedState(collectives::Group& ranks, const Mesh& mesh) {
  if (mesh.shard == 1) return;
  std::vector<int> neighbours, same_part;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank / mesh.shard == ranks.rank() / mesh.shard) neighbours.push_back(rank);
    if (rank % mesh.shard == ranks.rank() % mesh.shard) same_part.push_back(rank);
  }
  shard = ranks.part("shard", neighbours);
  if (mesh.replicate > 1) replicate = ranks.part("replicate", same_part);
}

}  // namespace temper::recipes
