#pragma once
#include "recipes/run_config.h"
#include "weights/layout.h"

namespace temper::recipes {

// How so many ranks divide the work: the degrees that the configuration names, and what is left for the one
// that is auto. An Error where they do not multiply to the number of ranks, with meshes that would.
Mesh mesh_of(const ParallelConfig& config, int ranks);

}  // namespace temper::recipes
