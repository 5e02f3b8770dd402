// Qwen3 (dense) and the text of Qwen3-VL: RMS norm on query and key heads, optional sliding windows.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_qwen3(ConfigReader& reader) {
  DenseConfig config;
  config.head_dim = 128;  // the family's default; not hidden_size / num_attention_heads
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  read_windows(reader, config);
  return decoder_of(config);
}

layers::DecoderConfig configure_text_of_vl3(ConfigReader& reader) {
  DenseConfig config;
  config.head_dim = 128;
  config.num_kv_heads = 32;
  config.rope_sections = {{24, 20, 20}, true};
  read_decoder(reader, config, 500000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  return decoder_of(config);
}

}  // namespace

void register_qwen3() {
  registry<Family>().add("qwen3", {configure_qwen3});
  registry<Family>().add("qwen3_vl_text", {configure_text_of_vl3});
  registry<Family>().add("qwen3_vl", {.text = TextPart{"qwen3_vl_text"}});
}

}  // namespace temper::models
