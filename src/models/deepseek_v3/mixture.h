#pragma once
#include <memory>

#include "layers/block.h"
#include "models/config_reader.h"

namespace temper::models {

// What config.json says of the layers that are mixtures of experts, by its keys.
struct DeepseekMixture {
  int64_t first_layer = 0;  // first_k_dense_replace
  int64_t num_experts = 0, top_k = 0, intermediate = 0, num_shared = 0;
  int64_t num_groups = 0, groups_chosen = 0;
  bool normalized = true;
  double scale = 1;
};

// Refused by name and value: what no router chooses from, and routers other than DeepSeek-V3's.
DeepseekMixture read_mixture(ConfigReader& reader, int64_t num_layers);

// The channel of a layer from first_layer on.
std::shared_ptr<const layers::Channel> mixture_channel(const DeepseekMixture& mixture, int64_t hidden);

}  // namespace temper::models
