// Qwen3's mixtures and the text of those of Qwen3-VL, whose files have transposes of experts' matrices:
// attention as qwen3, experts chosen by softmax in some or all layers.
#include <algorithm>

#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig with_mixtures(ConfigReader& reader, const DenseConfig& config, bool of_vl) {
  const std::vector<bool> mixed = read_mixed_layers(reader, config.num_layers);
  if (std::none_of(mixed.begin(), mixed.end(), [](bool each) { return each; })) return decoder_of(config);
  channels::ExpertsConfig experts = read_experts(
      reader, config.hidden_size, {{"num_experts", "num_local_experts"}, "moe_intermediate_size"});
  experts.routing.normalize = of_vl || reader.boolean("norm_topk_prob", false);
  experts.transposes_stacked = of_vl;
  const auto channel = channels::experts(experts);
  layers::DecoderConfig decoder = decoder_of(
      config, [&](int64_t layer) { return mixed[static_cast<size_t>(layer)] ? channel : nullptr; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

layers::DecoderConfig configure_qwen3_moe(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  read_windows(reader, config);
  return with_mixtures(reader, config, false);
}

layers::DecoderConfig configure_text_of_vl_moe(ConfigReader& reader) {
  DenseConfig config;
  config.num_kv_heads = 16;  // where the file does not say
  config.rope_sections = {{24, 20, 20}, true};
  read_decoder(reader, config, 500000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  reader.expect("norm_topk_prob", true, "weights of experts sum to one in this family");
  return with_mixtures(reader, config, true);
}

}  // namespace

void register_qwen3_moe() {
  registry<Family>().add("qwen3_moe", {configure_qwen3_moe});
  registry<Family>().add("qwen3_vl_moe_text", {configure_text_of_vl_moe});
  registry<Family>().add("qwen3_vl_moe", {.text = TextPart{"qwen3_vl_moe_text"}});
}

}  // namespace temper::models
