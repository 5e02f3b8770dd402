#include "recipes/keys/model_defaults.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/model.h"

namespace temper::recipes {

void set_model_defaults(RunConfig& config, const config::Schema& schema) {
  if (schema.was_written("data.max_length")) return;
  try {
    const std::string file = join_path(config.model.path, "config.json");
    const layers::DecoderConfig model =
        models::configure(checkpoints::read_model_config(config.model.path), file);
    config.data.max_length = std::min(config.data.max_length, model.max_positions);
  } catch (const Error&) {
    return;
  }
}

}  // namespace temper::recipes
