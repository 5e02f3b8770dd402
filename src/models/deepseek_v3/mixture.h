#pragma once
#include <memory>

#include "layers/block.h"
#include "models/config_reader.h"

namespace temper::models {

// What config.json says of the layers that are mixtures of experts.
struct DeepseekMixture {
  int64_t first_layer = 0;                         // first_k_dense_replace
  std::shared_ptr<const layers::Channel> channel;  // of the layers from there on
};

// Refused by name and value: what no router chooses from, and routers other than DeepSeek-V3's.
DeepseekMixture read_mixture(ConfigReader& reader, int64_t hidden, int64_t num_layers);

}  // namespace temper::models
