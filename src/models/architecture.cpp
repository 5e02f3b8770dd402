#include "models/architecture.h"

namespace temper::models {

Json architecture_json(const std::string& model_type, const layers::DecoderConfig& config) {
  Json json = layers::describe(config);
  json.set("model_type", model_type);
  return json;
}

}  // namespace temper::models
