// Qwen2 and Qwen2.5, and the text of their VL models: biases on q, k and v, optional sliding windows.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_qwen2(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = true;
  read_windows(reader, config);
  return decoder_of(config);
}

layers::DecoderConfig configure_text_of_vl(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 8;  // where the file does not say
  config.rms_norm_eps = 1e-5;
  config.rope_sections.emplace();  // in blocks; the file says how many
  read_decoder(reader, config, 1000000);
  config.qkv_bias = true;
  read_windows(reader, config);
  return decoder_of(config);
}

}  // namespace

void register_qwen2() {
  registry<Family>().add("qwen2", {configure_qwen2});
  for (const auto& [pictures, text] :
       {std::pair{"qwen2_vl", "qwen2_vl_text"}, {"qwen2_5_vl", "qwen2_5_vl_text"}}) {
    registry<Family>().add(text, {configure_text_of_vl});
    registry<Family>().add(pictures, {.text = TextPart{text, R"({"max_window_layers": 80})"}});
  }
}

}  // namespace temper::models
