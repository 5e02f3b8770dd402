// Gemma 3's text: norms around mixers and channels with weights as distances from one, layers with a sliding
// window and a rotation of their own, a gate of GELU, scaled embeddings.
#include <cmath>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

void read_layers(ConfigReader& reader, DenseConfig& config) {
  constexpr const char* kWindow = "sliding_window";
  reader.find("_sliding_window_pattern");  // which transformers writes and does not read
  const int64_t window = reader.integer(kWindow, 4096), pattern = reader.integer("sliding_window_pattern", 6);
  if (window <= 0 || reader.is_null(kWindow))
    reader.refuse(kWindow, fmt::format("is {}, expected a positive number",
                                       reader.is_null(kWindow) ? "null" : std::to_string(window)));
  if (pattern <= 0)
    reader.refuse("sliding_window_pattern", fmt::format("is {}, expected a positive number", pattern));
  if (!read_layer_types(reader, config, window, ""))
    for (int64_t i = 0; i < config.num_layers; ++i)
      config.windows[static_cast<size_t>(i)] = (i + 1) % pattern != 0 ? window : 0;
  const RopesByType ropes = read_ropes_by_type(reader, 1000000, 10000, config.max_positions);
  for (const int64_t own : config.windows) config.ropes.push_back(own > 0 ? ropes.sliding : ropes.full);
}

layers::DecoderConfig configure_gemma3(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 4;  // where the file does not say
  config.head_dim = 256;
  config.tied_head = true;
  config.activation = ops::Activation::kGeluTanh;
  config.norms = {.before_mixer = "input_layernorm",
                  .after_mixer = "post_attention_layernorm",
                  .before_channel = "pre_feedforward_layernorm",
                  .after_channel = "post_feedforward_layernorm"};
  config.norm_offset = 1;
  config.ropes_by_type = true;
  read_decoder(reader, config, 1000000);
  expect_activation(reader, "hidden_activation", {"gelu_pytorch_tanh"});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  config.multipliers.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  config.multipliers.rounds_embedding = true;
  const double scalar = reader.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0))
    reader.refuse("query_pre_attn_scalar", fmt::format("is {}, expected a positive number", scalar));
  config.attention_scale = 1 / std::sqrt(scalar);
  reader.expect("attn_logit_softcapping", nullptr, "soft caps of attention scores are not supported");
  reader.expect("final_logit_softcapping", nullptr, "soft caps of logits are not supported");
  reader.expect("use_bidirectional_attention", false, "attention to later tokens is not supported");
  read_layers(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_gemma3() {
  registry<Family>().add("gemma3_text", {configure_gemma3});
  // Published files have only what differs from these.
  registry<Family>().add(
      "gemma3", {.text = TextPart{"gemma3_text",
                                  R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                            "num_hidden_layers": 26, "num_attention_heads": 8,
                            "max_position_embeddings": 131072})"}});
}

}  // namespace temper::models
