// SmolLM3: some layers are not rotated, and only those may have a sliding window.
#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

// A list with 1 for layers that are rotated and 0 for the others, or an interval: every n-th layer is not
// rotated.
void read_rotated_layers(ConfigReader& reader, DenseConfig& config) {
  config.ropes.assign(static_cast<size_t>(config.num_layers), config.rope);
  constexpr const char *kInterval = "no_rope_layer_interval", *kList = "no_rope_layers";
  const int64_t interval = reader.integer(kInterval, 4);
  const Json* list = reader.find(kList);
  if (list == nullptr && interval <= 0)
    reader.refuse(kInterval, fmt::format("is {}, expected a positive number", interval));
  if (list != nullptr && (!list->is_array() || list->as_array().size() != config.ropes.size()))
    reader.refuse(kList, fmt::format("must list num_hidden_layers = {} numbers, 1 or 0", config.num_layers));
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    if (list != nullptr && list->as_array()[i] != Json(0) && list->as_array()[i] != Json(1))
      reader.refuse(kList,
                    fmt::format("has {} for layer {}; expected 1 or 0", list->as_array()[i].dump(), i));
    const bool rotated =
        list != nullptr ? list->as_array()[i] == Json(1) : (static_cast<int64_t>(i) + 1) % interval != 0;
    if (!rotated) config.ropes[i].partial_rotary_factor = 0;
  }
}

layers::DecoderConfig configure_smollm3(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 4;  // where the file does not say
  config.tied_head = true;
  read_decoder(reader, config, 2000000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  read_rotated_layers(reader, config);
  const bool use = reader.boolean("use_sliding_window", false);
  const bool written = reader.find("sliding_window") != nullptr;  // which says nothing where it is not used
  const int64_t window = use ? reader.integer("sliding_window", 0) : 0;
  if (use && written && window <= 0)
    reader.refuse("sliding_window", fmt::format("is {}, expected a positive number", window));
  if (!read_layer_types(reader, config, window, "use_sliding_window or sliding_window is not set"))
    for (size_t i = 0; i < config.windows.size(); ++i)
      config.windows[i] = config.ropes[i].partial_rotary_factor == 0 ? window : 0;
  return decoder_of(config);
}

}  // namespace

void register_smollm3() { registry<Family>().add("smollm3", {configure_smollm3}); }

}  // namespace temper::models
