// Llama 1 to 3: full attention, biases as configured.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_llama(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  expect_full_attention(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_llama() { registry<Family>().add("llama", {configure_llama}); }

}  // namespace temper::models
