// Qwen3's mixtures: attention as qwen3, experts chosen by softmax in some or all layers.
#include <algorithm>

#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

// The layers that have experts: every step-th, but for those that are listed as dense.
std::vector<bool> mixtures(ConfigReader& reader, int64_t layers) {
  const int64_t step = reader.integer("decoder_sparse_step", 1);
  if (step < 1) reader.refuse("decoder_sparse_step", fmt::format("is {}, expected 1 or more", step));
  std::vector<bool> all;
  for (int64_t i = 0; i < layers; ++i) all.push_back((i + 1) % step == 0);
  if (const Json* dense = reader.find("mlp_only_layers")) {
    if (!dense->is_array()) reader.refuse("mlp_only_layers", "must be a list of layers");
    for (const Json& layer : dense->as_array()) {
      if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= layers)
        reader.refuse("mlp_only_layers",
                      fmt::format("has {}, expected layers from 0 to {}", layer.dump(), layers - 1));
      all[static_cast<size_t>(layer.as_int())] = false;
    }
  }
  return all;
}

layers::DecoderConfig configure_qwen3_moe(ConfigReader& reader) {
  DenseConfig config;
  read_decoder(reader, config, 10000);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias", false);
  config.qk_norm = true;
  read_windows(reader, config);
  const std::vector<bool> mixed = mixtures(reader, config.num_layers);
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
