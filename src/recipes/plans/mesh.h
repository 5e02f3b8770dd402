#pragma once
#include <optional>

#include "layers/decoder.h"
#include "recipes/keys/run_config.h"
#include "recipes/parts/rollout_memory.h"
#include "weights/layout.h"

namespace temper::recipes {

// How `ranks` ranks divide the work, those of each stage where parallel.pipeline says that there are several:
// the degrees that the configuration names, and what is left for the one that is auto. An Error where they do
// not multiply to the number of ranks, with meshes that would and that fit the model and the memory.
Mesh mesh_of(const RunConfig& config, int ranks);
// An Error where this model, or something else that the run wants, is not for such a mesh.
void check_mesh(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config);

// How the ranks of all stages of a pipeline divide the model to answer questions (eval.exact_match), without
// stages: layers between as many ranks as hold a replica in training, where they can be divided so, otherwise
// as each stage divides them.
Mesh answering_mesh(const Mesh& stage, const layers::DecoderConfig& model, const RunConfig& config);

// How all ranks divide the model in rollouts where `training`, the mesh of each stage, does not: the mesh
// whose degrees are these, if there are any, or answering_mesh() of several stages. Nothing: rollouts use the
// weights that are trained. An Error where the degrees cannot be, or where training divides the model like
// that already, starts with "[grpo.engine.parallel]".
std::optional<Mesh> rollout_mesh(const std::optional<RolloutDegrees>& degrees, const Mesh& training,
                                 const layers::DecoderConfig& model, const RunConfig& config);

}  // namespace temper::recipes
