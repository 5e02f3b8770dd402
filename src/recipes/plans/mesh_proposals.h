#pragma once
#include <string>

#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// Up to three divisions of the work between that many ranks that suit the run's model and whose ranks need at
// most `limit` bytes each, those that cost the least speed first: "{replicate: 2, shard: 2} (about 1.2 GiB a
// rank)", "{pipeline: 2, replicate: 1, shard: 2}". Degrees of tensor and expert and the stages that the
// configuration names stay where they can. Empty where no division does.
std::string proposed_meshes(const RunConfig& config, const Setting& setting, int ranks, int64_t limit);

// The same for a run of which nothing is known yet but its configuration, and its model where that is not
// null: on its device. Where the model cannot be read, divisions without their memory.
std::string proposed_meshes(const RunConfig& config, int ranks, const layers::DecoderConfig* model = nullptr);

}  // namespace temper::recipes
