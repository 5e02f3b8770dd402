#pragma once
#include <string>

#include "collectives/group.h"
#include "device/facts.h"
#include "recipes/plans/mesh.h"

// Benchmarks that mpirun starts on several ranks.
namespace temper {

// Of several ranks each has a GPU of its machine to itself.
inline HardwareFacts hardware_of_rank(const std::string& device, const collectives::Group& hosts) {
  return detect_hardware(
      hosts.is_alone() || device != "cuda" ? device : fmt::format("cuda:{}", hosts.on_machine().place));
}

inline Mesh mesh_of_ranks(recipes::RunConfig config, int64_t tensor, int64_t expert, int ranks) {
  config.parallel.degree("tensor") = std::to_string(tensor);
  config.parallel.degree("expert") = std::to_string(expert);
  return recipes::mesh_of(config, ranks);
}

}  // namespace temper
