// Granite 3 (dense): multipliers of embeddings, scores, residual branches and logits.
#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_granite(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  const auto multiplier = [&](const char* key) {
    const double value = reader.number(key, 1);
    if (!(value > 0)) reader.refuse(key, fmt::format("is {}, expected a positive number", value));
    return value;
  };
  config.multipliers.embedding = multiplier("embedding_multiplier");
  config.attention_scale = multiplier("attention_multiplier");
  config.multipliers.residual = multiplier("residual_multiplier");
  config.multipliers.logits_divisor = multiplier("logits_scaling");
  expect_full_attention(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_granite() { registry<Family>().add("granite", {configure_granite}); }

}  // namespace temper::models
