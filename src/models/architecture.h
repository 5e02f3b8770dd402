#pragma once
#include <string>

#include "base/json/json.h"
#include "layers/decoder.h"

namespace temper::models {

// All of a configuration that decides what the model computes, one value a key, however its config.json
// spells it: files with equal objects are of the same architecture. What only a new model needs
// (initializer_range) and what training refuses (attention_dropout) is not in it.
Json architecture_json(const std::string& model_type, const layers::DecoderConfig& config);

}  // namespace temper::models
