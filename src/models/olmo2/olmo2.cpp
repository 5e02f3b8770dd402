// OLMo 2: norms behind mixers and channels alone, and norms of all queries and all keys together.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_olmo2(ConfigReader& reader) {
  DenseConfig config;
  config.rms_norm_eps = 1e-5;
  config.norms = {.before_mixer = "",
                  .after_mixer = "post_attention_layernorm",
                  .before_channel = "",
                  .after_channel = "post_feedforward_layernorm"};
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = config.norms_all_heads = true;
  expect_full_attention(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_olmo2() { registry<Family>().add("olmo2", {configure_olmo2}); }

}  // namespace temper::models
