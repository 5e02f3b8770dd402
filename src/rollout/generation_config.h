#pragma once
#include <string>

#include "rollout/generator.h"

namespace temper::rollout {

// What a model folder says about generation: generation_config.json (sampling, stop tokens, length) and
// config.json (stop tokens). Settings that Temper does not have are warned about by name, never dropped in
// silence. With do_sample false or absent the temperature is 0.
GenerateOptions read_generation_config(const std::string& model_folder);

}  // namespace temper::rollout
