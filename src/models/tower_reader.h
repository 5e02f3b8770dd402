#pragma once
#include <memory>
#include <string>

#include "base/json/json.h"
#include "layers/tower.h"

namespace temper::models {

// The tower that a config.json describes in its vision_config; null where its model_type has none that
// src/towers knows. `where` names the file in errors.
std::shared_ptr<const layers::Tower> read_tower(const Json& config, const std::string& where);

}  // namespace temper::models
