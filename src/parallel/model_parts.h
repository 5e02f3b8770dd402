#pragma once
#include "layers/decoder.h"

namespace temper::parallel {

// The layers of a model in parts of about equal cost of a pass (divide_layers), `chunks` for each of the
// ranks' stages; the first has the embedding in addition, the last one the head. Of one stage the ranks as
// they are.
//
// An Error where there are more parts than layers, which says how many fit.
layers::ModelRanks with_parts(layers::ModelRanks ranks, const layers::DecoderConfig& model, int chunks = 1);

}  // namespace temper::parallel
