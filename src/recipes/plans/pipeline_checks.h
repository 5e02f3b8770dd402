#pragma once
#include <string>

#include "layers/decoder.h"
#include "parallel/mesh_groups.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// An Error where the keys of stages contradict each other.
void check_schedule_keys(const ParallelConfig& config);

// That the model has too few layers for the stages of a pipeline (parallel.pipeline), as the beginning of an
// error; empty where it has enough.
std::string too_few_layers(const layers::DecoderConfig& model, const ParallelConfig& parallel);

// An Error where the run wants something that stages of a pipeline cannot do. Nothing where there is one
// stage.
void check_pipeline(const RunConfig& config);

// The ranks that compute this model together on such devices, with the parts of its layers as the run divides
// them.
layers::ModelRanks model_ranks(const parallel::MeshGroups& groups, const layers::DecoderConfig& model,
                               const RunConfig& config, Device device);

}  // namespace temper::recipes
