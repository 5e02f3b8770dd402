#include <algorithm>

#include "base/error.h"
#include "checkpoints/quantized_form.h"
#include "models/config_reader.h"

namespace temper::models {
namespace {

// No published model comes near; with these a model's size in bytes is below 2^63.
constexpr int64_t kMostLayers = 4096, kMostHidden = int64_t{1} << 20, kMostInner = int64_t{1} << 24,
                  kMostTokens = int64_t{1} << 24, kMostHeads = int64_t{1} << 14, kMostHeadDim = 4096,
                  kMostPositions = int64_t{1} << 31;

void read_heads(ConfigReader& reader, DenseConfig& config) {
  config.num_heads = reader.positive("num_attention_heads", kMostHeads);
  if (reader.find("num_key_value_heads") != nullptr)
    config.num_kv_heads = reader.positive("num_key_value_heads", kMostHeads);
  else if (config.num_kv_heads == 0 || reader.is_null("num_key_value_heads"))
    config.num_kv_heads = config.num_heads;
  if (config.num_heads % config.num_kv_heads != 0)
    reader.refuse("num_key_value_heads", fmt::format("is {}, which does not divide num_attention_heads = {}",
                                                     config.num_kv_heads, config.num_heads));
  if (reader.find("head_dim") != nullptr) {
    config.head_dim = reader.positive("head_dim", kMostHeadDim);
  } else if (config.head_dim == 0) {
    if (config.hidden_size % config.num_heads != 0)
      reader.refuse("hidden_size", "is not a multiple of num_attention_heads, and head_dim is not given");
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0)
    reader.refuse("head_dim", fmt::format("is {}; rotary embedding needs an even number", config.head_dim));
}

// None of them takes part in a forward pass. -1 is how some write that there is no such token.
void check_token_ids(ConfigReader& reader, int64_t vocab_size) {
  constexpr std::string_view kPad = "pad_token_id";
  for (const std::string key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const Json* value = reader.find(key);
    if (value == nullptr) continue;
    const Json::Array ids = value->is_array() ? value->as_array() : Json::Array{*value};
    for (const Json& id : ids)
      if (!id.is_int())
        reader.refuse(key, fmt::format("has {}, expected a token's number from 0 to vocab_size - 1 = {}",
                                       id.dump(), vocab_size - 1));
      else if (id.as_int() < -1 || id.as_int() >= vocab_size)
        reader.add_warning(
            key, fmt::format("has {}, but the tokens are 0 to vocab_size - 1 = {}; it has no effect{}",
                             id.dump(), vocab_size - 1,
                             key == kPad ? ", but transformers may refuse to load such a model" : ""));
  }
}

// What transformers reads of any decoder's configuration and Temper does not have.
void refuse_unsupported(ConfigReader& reader, bool reads_mxfp4) {
  reader.expect("is_causal", true, "attention to later tokens is not supported");
  reader.expect("per_layer_config", Json::Object{}, "layers that differ from one another are not supported");
  reader.expect("kv_sharing_modes", nullptr, "keys and values shared by layers are not supported");
  if (const Json* quantized = reader.find("quantization_config")) {
    const std::string method = checkpoints::readable_quant_method(*quantized, reader.where());
    if (method == "mxfp4" && !reads_mxfp4)
      reader.refuse("quantization_config",
                    "is \"mxfp4\", which is read of families whose published files have it; use the original "
                    "in bfloat16");
  }
}

void read_rope_of_heads(ConfigReader& reader, DenseConfig& config, double default_theta) {
  config.rope = read_rope(reader, default_theta, config.max_positions,
                          {config.partial_rotary_factor, config.rope_sections});
  const double factor = config.rope.partial_rotary_factor;
  if (!(factor >= 0 && factor <= 1))
    reader.refuse("partial_rotary_factor", fmt::format("is {}, expected a number from 0 to 1", factor));
  const int64_t rotated = layers::rotated_width(config.rope, config.head_dim);
  if (rotated < 2 || rotated % 2 != 0)
    reader.refuse("partial_rotary_factor",
                  fmt::format("is {}, which rotates {} of a head of {}; needs an even number of at least 2",
                              factor, rotated, config.head_dim));
  if (config.rope_sections) check_sections(reader, config.rope, config.head_dim);
}

}  // namespace

void expect_activation(ConfigReader& reader, const std::string& key, const std::vector<std::string>& names) {
  const std::string activation = reader.text(key, names.front());
  if (std::find(names.begin(), names.end(), activation) == names.end())
    reader.refuse(key, fmt::format("is '{}'; only '{}' is supported", activation, names.front()));
}

void read_decoder(ConfigReader& reader, DenseConfig& config, double default_rope_theta) {
  config.vocab_size = reader.positive("vocab_size", kMostTokens);
  config.hidden_size = reader.positive("hidden_size", kMostHidden);
  config.intermediate_size = config.intermediate_size > 0
                                 ? reader.positive("intermediate_size", config.intermediate_size, kMostInner)
                                 : reader.positive("intermediate_size", kMostInner);
  config.num_layers = reader.positive("num_hidden_layers", kMostLayers);
  read_heads(reader, config);
  config.max_positions = reader.positive("max_position_embeddings", kMostPositions);
  config.rms_norm_eps = reader.not_negative("rms_norm_eps", config.rms_norm_eps);
  config.initializer_range = reader.not_negative("initializer_range", config.initializer_range);
  config.tied_head = reader.boolean("tie_word_embeddings", config.tied_head);
  if (config.activation == ops::Activation::kSilu) expect_activation(reader, "hidden_act", {"silu", "swish"});
  if (const double dropout = reader.not_negative("attention_dropout", 0); dropout > 0)
    reader.refuse_training("attention_dropout",
                           fmt::format("is {}; dropout of attention is not supported in training, set it to "
                                       "0.0 in this file to train without it",
                                       dropout));
  check_token_ids(reader, config.vocab_size);
  refuse_unsupported(reader, config.reads_mxfp4);
  if (!config.ropes_by_type) read_rope_of_heads(reader, config, default_rope_theta);
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
}

void read_windows(ConfigReader& reader, DenseConfig& config) {
  const bool use = reader.boolean("use_sliding_window", false);
  reader.find("sliding_window");  // which says nothing where it is not used
  const int64_t window = use ? reader.integer("sliding_window", 4096) : 0;
  const int64_t full_layers = reader.integer("max_window_layers", 28);
  if (use && window <= 0)
    reader.refuse("sliding_window", fmt::format("is {}, expected a positive number", window));
  if (use && full_layers < 0)
    reader.refuse("max_window_layers", fmt::format("is {}, expected 0 or more", full_layers));
  if (read_layer_types(reader, config, window, "use_sliding_window is not true")) return;
  for (int64_t i = 0; i < config.num_layers; ++i)
    config.windows[static_cast<size_t>(i)] = i >= full_layers ? window : 0;
}

void read_window_of_all_layers(ConfigReader& reader, DenseConfig& config, int64_t otherwise) {
  const int64_t window = reader.is_null("sliding_window") ? 0 : reader.integer("sliding_window", otherwise);
  if (window < 0 || (window == 0 && reader.find("sliding_window") != nullptr))
    reader.refuse("sliding_window", fmt::format("is {}, expected a positive number or null", window));
  reader.expect("layer_types", nullptr,
                "layers of this model_type are all alike, set sliding_window for them");
  config.windows.assign(static_cast<size_t>(config.num_layers), window);
}

bool read_layer_types(ConfigReader& reader, DenseConfig& config, int64_t window, const std::string& why) {
  const Json* types = reader.find("layer_types");
  if (types == nullptr) return false;
  if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != config.num_layers)
    reader.refuse("layer_types", fmt::format("must list num_hidden_layers = {} names", config.num_layers));
  for (size_t i = 0; i < config.windows.size(); ++i) {
    const Json& type = types->as_array()[i];
    const std::string name = type.is_string() ? type.as_string() : type.dump();
    if (name != "full_attention" && name != "sliding_attention")
      reader.refuse("layer_types",
                    fmt::format("has '{}' for layer {}; use full_attention or sliding_attention", name, i));
    if (name == "sliding_attention" && window == 0)
      reader.refuse("layer_types", fmt::format("has sliding_attention for layer {}, but {}", i, why));
    config.windows[i] = name == "sliding_attention" ? window : 0;
  }
  return true;
}

void expect_full_attention(ConfigReader& reader, const DenseConfig& config) {
  reader.expect("attention_chunk_size", nullptr, "attention in chunks is not supported");
  const bool use = reader.boolean("use_sliding_window", true);
  const int64_t window = reader.integer("sliding_window", config.max_positions);
  if (use && window < config.max_positions)
    reader.refuse(
        "sliding_window",
        fmt::format("is {}; layers of this model_type see all tokens before them, set it to null", window));
  if (const Json* types = reader.find("layer_types")) {
    const Json::Array names = types->is_array() ? types->as_array() : Json::Array{*types};
    for (const Json& name : names)
      if (name != Json("full_attention"))
        reader.refuse("layer_types",
                      fmt::format("has {}; layers of this model_type have full_attention only", name.dump()));
  }
}

}  // namespace temper::models
