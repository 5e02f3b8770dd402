#pragma once
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Defaults that depend on the model, of keys that were not written: data.max_length is at most the model's
// max_position_embeddings. A model that cannot be read changes nothing: what is made of the run reports it.
void set_model_defaults(RunConfig& config, const config::Schema& schema);

}  // namespace temper::recipes
