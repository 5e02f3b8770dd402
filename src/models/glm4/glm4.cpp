// GLM-4 (0414, dense): halves of heads are rotated, by neighbouring pairs; norms around mixers and channels.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_glm4(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 2;  // where the file does not say
  config.head_dim = 128;
  config.rms_norm_eps = 1.5625e-7;
  config.partial_rotary_factor = 0.5;
  config.interleaved_rotation = true;
  config.fused_gate_up = true;
  config.norms.after_mixer = "post_self_attn_layernorm";
  config.norms.after_channel = "post_mlp_layernorm";
  read_decoder(reader, config, 10000);
  config.qkv_bias = reader.boolean("attention_bias", true);
  expect_full_attention(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_glm4() { registry<Family>().add("glm4", {configure_glm4}); }

}  // namespace temper::models
