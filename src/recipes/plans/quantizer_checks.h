#pragma once
#include "layers/decoder.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// What a run's quantizers need of its mesh, its recipe and its exchange: elements that share an amax are on
// one rank or are a whole matrix, and what rounds an input does not depend on which rows pass with it. An
// Error names the first
// quantizer that cannot be.
void check_quantized(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config);

}  // namespace temper::recipes
