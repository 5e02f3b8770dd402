#include "base/error.h"
#include "models/config_reader.h"

namespace temper::models {
namespace {

constexpr int64_t kMostExperts = 4096, kMostWidth = int64_t{1} << 24;

int64_t first_of(ConfigReader& reader, std::initializer_list<const char*> keys, int64_t most) {
  const char* first = *keys.begin();
  for (const char* key : std::vector(std::rbegin(keys), std::rend(keys)))
    if (reader.find(key) != nullptr) first = key;
  return reader.positive(first, most);
}

}  // namespace

channels::ExpertsConfig read_experts(ConfigReader& reader, int64_t hidden, const ExpertKeys& keys) {
  channels::ExpertsConfig config;
  config.hidden = hidden;
  config.width = reader.positive(keys.width, kMostWidth);
  config.routing.experts = first_of(reader, keys.experts, kMostExperts);
  config.routing.top_k = reader.positive("num_experts_per_tok", kMostExperts);
  if (config.routing.top_k > config.routing.experts)
    reader.refuse("num_experts_per_tok", fmt::format("is {}, but there are {} experts", config.routing.top_k,
                                                     config.routing.experts));
  return config;
}

std::vector<bool> read_mixed_layers(ConfigReader& reader, int64_t layers) {
  const int64_t step = reader.integer("decoder_sparse_step", 1);
  if (step < 1) reader.refuse("decoder_sparse_step", fmt::format("is {}, expected 1 or more", step));
  std::vector<bool> all;
  for (int64_t i = 0; i < layers; ++i) all.push_back((i + 1) % step == 0);
  if (const Json* dense = reader.find("mlp_only_layers")) {
    if (!dense->is_array()) reader.refuse("mlp_only_layers", "must be a list of layers");
    for (const Json& layer : dense->as_array()) {
      if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= layers)
        reader.refuse("mlp_only_layers",
                      fmt::format("has {}, expected layers from 0 to {}", layer.dump(), layers - 1));
      all[static_cast<size_t>(layer.as_int())] = false;
    }
  }
  return all;
}

double read_balance_factor(ConfigReader& reader) {
  const double factor = reader.not_negative("router_aux_loss_coef", 0.001);
  return reader.boolean("output_router_logits", false) ? factor : 0;
}

}  // namespace temper::models
