#pragma once
#include "base/json/json.h"
#include "layers/parameters/model_ranks.h"
#include "layers/parameters/parameters.h"

namespace temper::parallel {

// The layout of a run, as layout.json in its folder says it: the mesh; where there are several, the stages of
// the pipeline, of each its ranks and its layers ([first, count], of each of its parts), and whether it has
// the embedding and the head; and of each parameter its whole shape, the elements that each part of it has
// (rows and columns of the whole, [first, count]), the first rank that holds the part, the stage that has a
// copy of it (of a tied head), whether its value is gathered before its layer, among how many ranks its
// optimizer state is divided, and over what its gradient is summed. Every gradient is a sum over target
// tokens that is divided once, by the count of the whole update.
Json layout_json(const layers::ParameterStore& parameters, const layers::ModelStages& stages = {});

}  // namespace temper::parallel
