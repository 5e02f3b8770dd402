#include "models/architecture.h"

namespace temper::models {
namespace {

std::string_view name_of(layers::RopeType type) {
  switch (type) {
    case layers::RopeType::kDefault:
      return "default";
    case layers::RopeType::kLinear:
      return "linear";
    case layers::RopeType::kLlama3:
      return "llama3";
    case layers::RopeType::kYarn:
      return "yarn";
  }
  return "";
}

Json windows_of(const std::vector<int64_t>& windows) {
  Json::Array list;
  for (const int64_t window : windows) list.emplace_back(window);
  return list;
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// What the type reads.
void add_rope(Json& json, const layers::RopeConfig& rope) {
  json.set("rope_type", name_of(rope.type));
  json.set("rope_theta", rope.theta);
  if (rope.type == layers::RopeType::kDefault) return;
  json.set("rope factor", rope.factor);
  if (rope.type == layers::RopeType::kLinear) return;
  json.set("rope original_max_position_embeddings", rope.original_max_position_embeddings);
  if (rope.type == layers::RopeType::kLlama3) {
    json.set("rope low_freq_factor", rope.low_freq_factor);
    json.set("rope high_freq_factor", rope.high_freq_factor);
    return;
  }
  json.set("rope beta_fast", rope.beta_fast);
  json.set("rope beta_slow", rope.beta_slow);
  json.set("rope attention_factor", known(rope.attention_factor));
  json.set("rope mscale", known(rope.mscale));
  json.set("rope mscale_all_dim", known(rope.mscale_all_dim));
  json.set("rope truncate", rope.truncate);
}

}  // namespace

Json architecture_json(const std::string& model_type, const layers::DecoderConfig& c) {
  Json json = Json::Object{{"model_type", model_type},
                           {"vocab_size", c.vocab_size},
                           {"hidden_size", c.hidden_size},
                           {"intermediate_size", c.intermediate_size},
                           {"num_hidden_layers", c.num_layers},
                           {"num_attention_heads", c.num_heads},
                           {"num_key_value_heads", c.num_kv_heads},
                           {"head_dim", c.head_dim},
                           {"max_position_embeddings", c.max_positions},
                           {"rms_norm_eps", c.rms_norm_eps},
                           {"biases of q, k and v", c.qkv_bias},
                           {"bias of o", c.output_bias},
                           {"mlp_bias", c.mlp_bias},
                           {"norms of q and k", c.qk_norm},
                           {"tie_word_embeddings", c.tied_head},
                           {"sliding windows of layers", windows_of(c.windows)}};
  add_rope(json, c.rope);
  return json;
}

}  // namespace temper::models
