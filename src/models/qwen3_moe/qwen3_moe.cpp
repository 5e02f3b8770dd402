// Qwen3's mixtures: attention as qwen3, experts chosen by softmax in some or all layers.
#include <algorithm>

#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_qwen3_moe(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  read_windows(reader, config);
  const std::vector<bool> mixed = read_mixed_layers(reader, config.num_layers);
  if (std::none_of(mixed.begin(), mixed.end(), [](bool each) { return each; })) return decoder_of(config);
  channels::ExpertsConfig experts = read_experts(
      reader, config.hidden_size, {{"num_experts", "num_local_experts"}, "moe_intermediate_size"});
  experts.routing.normalize = reader.boolean("norm_topk_prob", false);
  const auto channel = channels::experts(experts);
  layers::DecoderConfig decoder = decoder_of(
      config, [&](int64_t layer) { return mixed[static_cast<size_t>(layer)] ? channel : nullptr; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

}  // namespace

void register_qwen3_moe() { registry<Family>().add("qwen3_moe", {configure_qwen3_moe}); }

}  // namespace temper::models
