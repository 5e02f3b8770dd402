#pragma once
#include <string>

#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// Up to three meshes of that many ranks that the run's model can be divided by and whose ranks need at most
// `limit` bytes each, those that cost the least speed first: "{replicate: 2, shard: 2} (about 1.2 GiB a
// rank)". Degrees of tensor and expert that the configuration names stay where they can. Empty where no mesh
// does.
std::string proposed_meshes(const RunConfig& config, const Setting& setting, int ranks, int64_t limit);

// The same for a run of which nothing is known yet but its configuration: on its device. Where its model
// cannot be read, meshes without their memory.
std::string proposed_meshes(const RunConfig& config, int ranks);

}  // namespace temper::recipes
