#include "models/config_reader.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::models {

namespace {

// Keys that the ecosystem writes into every config.json and that say nothing about a forward pass.
constexpr const char* kNeverRelevant[] = {"architectures",
                                          "model_type",
                                          "transformers_version",
                                          "dtype",
                                          "torch_dtype",
                                          "use_cache",
                                          "_name_or_path",
                                          "_attn_implementation_autoset",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "sep_token_id",
                                          "decoder_start_token_id",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "output_scores",
                                          "torchscript",
                                          "use_bfloat16",
                                          "pruned_heads",
                                          "is_encoder_decoder",
                                          "is_decoder",
                                          "tie_encoder_decoder",
                                          "chunk_size_feed_forward",
                                          "tokenizer_class",
                                          "prefix",
                                          "problem_type",
                                          "id2label",
                                          "label2id",
                                          "num_labels",
                                          "task_specific_params",
                                          "finetuning_task",
                                          "auto_map",
                                          "pretraining_tp",
                                          "max_length",
                                          "min_length",
                                          "do_sample",
                                          "early_stopping",
                                          "num_beams",
                                          "num_beam_groups",
                                          "diversity_penalty",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "typical_p",
                                          "repetition_penalty",
                                          "length_penalty",
                                          "no_repeat_ngram_size",
                                          "encoder_no_repeat_ngram_size",
                                          "bad_words_ids",
                                          "num_return_sequences",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "remove_invalid_values",
                                          "exponential_decay_length_penalty",
                                          "suppress_tokens",
                                          "begin_suppress_tokens",
                                          "tf_legacy_loss"};

}  // namespace

ConfigReader::ConfigReader(const Json& config, std::string where)
    : config_(config), where_(std::move(where)) {
  if (!config.is_object()) fail("[{}] expected an object, found {}", where_, config.kind_name());
  known_.insert(std::begin(kNeverRelevant), std::end(kNeverRelevant));
}

const Json* ConfigReader::find(const std::string& key) {
  known_.insert(key);
  const Json* value = config_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void ConfigReader::refuse(const std::string& key, const std::string& problem) const {
  fail("[{}] {} {}", where_, key, problem);
}

int64_t ConfigReader::integer(const std::string& key, int64_t otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_int()) refuse(key, fmt::format("is {}, expected an integer", value->kind_name()));
  return value->as_int();
}

int64_t ConfigReader::positive(const std::string& key) {
  if (find(key) == nullptr) refuse(key, "is missing; is this a Hugging Face model folder?");
  const int64_t value = integer(key, 0);
  // Anything larger could not be addressed when multiplied with another size.
  if (value <= 0 || value > (int64_t{1} << 31))
    refuse(key, fmt::format("is {}, expected 1 to 2147483648", value));
  return value;
}

double ConfigReader::number(const std::string& key, double otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(key, fmt::format("is {}, expected a number", value->kind_name()));
  return value->as_double();
}

bool ConfigReader::boolean(const std::string& key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) refuse(key, fmt::format("is {}, expected true or false", value->kind_name()));
  return value->as_bool();
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, fmt::format("is {}, expected a string", value->kind_name()));
  return value->as_string();
}

void ConfigReader::irrelevant(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
}

void ConfigReader::finish() const {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& [key, value] : config_.as_object()) {
    if (known_.contains(key)) continue;
    if (key == "quantization_config")
      refuse(key, "is set: quantized checkpoints are not supported yet; use the bf16 original");
    const std::string nearest = nearest_name(key, known);
    refuse(key, fmt::format(
                    "is not a key that Temper knows for this model_type{}; if it changes nothing, remove it",
                    nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
  }
}

void read_decoder(ConfigReader& reader, layers::DecoderConfig& config, double default_rope_theta) {
  config.vocab_size = reader.positive("vocab_size");
  config.hidden_size = reader.positive("hidden_size");
  config.intermediate_size = reader.positive("intermediate_size");
  config.num_layers = reader.positive("num_hidden_layers");
  config.num_heads = reader.positive("num_attention_heads");
  config.num_kv_heads = reader.find("num_key_value_heads") != nullptr ? reader.positive("num_key_value_heads")
                                                                      : config.num_heads;
  if (config.num_heads % config.num_kv_heads != 0)
    reader.refuse("num_key_value_heads", fmt::format("is {}, which does not divide num_attention_heads = {}",
                                                     config.num_kv_heads, config.num_heads));
  if (reader.find("head_dim") != nullptr) {
    config.head_dim = reader.positive("head_dim");
  } else if (config.head_dim == 0) {
    if (config.hidden_size % config.num_heads != 0)
      reader.refuse("hidden_size", "is not a multiple of num_attention_heads, and head_dim is not given");
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0)
    reader.refuse("head_dim", fmt::format("is {}; rotary embedding needs an even number", config.head_dim));
  config.max_positions = reader.positive("max_position_embeddings");
  config.rms_norm_eps = reader.number("rms_norm_eps", config.rms_norm_eps);
  config.initializer_range = reader.number("initializer_range", config.initializer_range);
  config.tied_head = reader.boolean("tie_word_embeddings", config.tied_head);
  const std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    reader.refuse("hidden_act", fmt::format("is '{}'; only 'silu' is supported", activation));
  if (reader.number("attention_dropout", 0) != 0)
    reader.refuse("attention_dropout", "is not 0; dropout is not supported, set it to 0.0");
  config.rope = read_rope(reader, default_rope_theta, config.max_positions);
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
}

void read_windows(ConfigReader& reader, layers::DecoderConfig& config) {
  const bool use = reader.boolean("use_sliding_window", false);
  const int64_t window = use ? reader.integer("sliding_window", 4096) : 0;
  const int64_t full_layers = reader.integer("max_window_layers", 28);
  reader.irrelevant({"sliding_window"});
  if (use && window <= 0)
    reader.refuse("sliding_window", fmt::format("is {}, expected a positive number", window));
  const Json* types = reader.find("layer_types");
  if (types == nullptr) {
    for (int64_t i = 0; i < config.num_layers; ++i)
      config.windows[static_cast<size_t>(i)] = i >= full_layers ? window : 0;
    return;
  }
  if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != config.num_layers)
    reader.refuse("layer_types", fmt::format("must list num_hidden_layers = {} names", config.num_layers));
  for (size_t i = 0; i < config.windows.size(); ++i) {
    const Json& type = types->as_array()[i];
    const std::string name = type.is_string() ? type.as_string() : std::string(type.kind_name());
    if (name != "full_attention" && name != "sliding_attention")
      reader.refuse("layer_types",
                    fmt::format("has '{}' for layer {}; use full_attention or sliding_attention", name, i));
    if (name == "sliding_attention" && window == 0)
      reader.refuse("layer_types",
                    fmt::format("has sliding_attention for layer {}, but use_sliding_window is not true", i));
    config.windows[i] = name == "sliding_attention" ? window : 0;
  }
}

}  // namespace temper::models
