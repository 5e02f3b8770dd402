#pragma once
#include <vector>

#include "layers/decoder.h"
#include "parallel/pipeline/layer_parts.h"

namespace temper::parallel {

// The layers of a model in parts of about equal cost of a pass (divide_layers), `chunks` for each of the
// ranks' stages; the first has the embedding in addition, the last one the head. Of one stage the ranks as
// they are.
//
// An Error where there are more parts than layers, which says how many fit.
layers::ModelRanks with_parts(layers::ModelRanks ranks, const layers::DecoderConfig& model, int chunks = 1);

// The layers that a stage has, part by part. Of one stage none: it has all of them.
std::vector<LayerRange> layers_of_stage(const layers::ModelStages& stages, int stage);

}  // namespace temper::parallel
