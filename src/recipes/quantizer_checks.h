#pragma once
#include "layers/decoder.h"
#include "recipes/run_config.h"

namespace temper::recipes {

// What a run's quantizers need of its mesh, its recipe, its adapters and its exchange: elements that share an
// amax are on one rank or are a whole matrix, what rounds an input does not depend on which rows pass with
// it, and what rounds values that pass is not of a run that sends its weights. An Error names the first
// quantizer that cannot be.
void check_quantized(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config);

}  // namespace temper::recipes
