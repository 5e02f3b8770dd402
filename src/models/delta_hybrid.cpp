#include "models/delta_hybrid.h"

#include "base/error.h"
#include "channels/gated_mlp/gated_mlp.h"

namespace temper::models {
namespace {

constexpr int64_t kMostDeltaHeads = 65536, kMostDeltaDim = 4096, kMostConvolution = 16,
                  kMostShared = int64_t{1} << 24;

// Of the layers, those of the delta rule: layer_types, or all but every so-many-th.
std::vector<bool> read_delta_layers(ConfigReader& reader, int64_t layers) {
  std::vector<bool> all;
  const Json* types = reader.find("layer_types");
  if (types == nullptr) {
    const int64_t interval = reader.integer("full_attention_interval", 4);
    if (interval < 1)
      reader.refuse("full_attention_interval", fmt::format("is {}, expected 1 or more", interval));
    for (int64_t i = 0; i < layers; ++i) all.push_back((i + 1) % interval != 0);
    return all;
  }
  if (!types->is_array() || static_cast<int64_t>(types->as_array().size()) != layers)
    reader.refuse("layer_types", fmt::format("must list num_hidden_layers = {} names", layers));
  for (const Json& type : types->as_array()) {
    const std::string name = type.is_string() ? type.as_string() : type.dump();
    if (name != "linear_attention" && name != "full_attention")
      reader.refuse(
          "layer_types",
          fmt::format("has '{}' for layer {}; use linear_attention or full_attention", name, all.size()));
    all.push_back(name == "linear_attention");
  }
  return all;
}

mixers::GatedDeltaConfig read_delta(ConfigReader& reader, const DenseConfig& dense, bool by_key_head) {
  mixers::GatedDeltaConfig config;
  config.hidden = dense.hidden_size;
  config.key_heads = reader.positive("linear_num_key_heads", 16, kMostDeltaHeads);
  config.heads = reader.positive("linear_num_value_heads", 32, kMostDeltaHeads);
  config.key_dim = reader.positive("linear_key_head_dim", 128, kMostDeltaDim);
  config.value_dim = reader.positive("linear_value_head_dim", 128, kMostDeltaDim);
  config.width = reader.positive("linear_conv_kernel_dim", 4, kMostConvolution);
  config.norm_eps = dense.rms_norm_eps;
  config.by_key_head = by_key_head;
  if (config.heads % config.key_heads != 0)
    reader.refuse("linear_num_value_heads",
                  fmt::format("is {}, expected a multiple of linear_num_key_heads = {}", config.heads,
                              config.key_heads));
  if (config.width < 2)
    reader.refuse("linear_conv_kernel_dim",
                  fmt::format("is {}, expected 2 to {}", config.width, kMostConvolution));
  return config;
}

}  // namespace

DeltaHybrid read_delta_hybrid(ConfigReader& reader, DenseConfig dense, bool by_key_head) {
  dense.head_dim = 256;  // where the file does not say
  dense.partial_rotary_factor = 0.25;
  dense.norm_offset = 1;
  dense.qk_norm = true;
  dense.output_gate = true;
  read_decoder(reader, dense, 10000);
  dense.qkv_bias = dense.output_bias = reader.boolean("attention_bias", false);
  const mixers::GatedDeltaConfig delta = read_delta(reader, dense, by_key_head);
  std::vector<bool> layers = read_delta_layers(reader, dense.num_layers);
  return {std::move(dense), delta, std::move(layers)};
}

layers::DecoderConfig decoder_of(const DeltaHybrid& hybrid, const ChannelOf& channel_of) {
  layers::DecoderConfig decoder = decoder_of(hybrid.dense, channel_of);
  decoder.published.kept_tensors = {"mtp."};  // predictors of several tokens: no pass here computes them
  const auto delta = mixers::gated_delta(hybrid.delta);
  for (size_t i = 0; i < decoder.blocks.size(); ++i)
    if (hybrid.delta_layers[i]) decoder.blocks[i].mixer = delta;
  return decoder;
}

std::shared_ptr<const layers::Channel> read_shared_mixture(ConfigReader& reader, int64_t hidden,
                                                           bool normalize) {
  channels::ExpertsConfig experts =
      read_experts(reader, hidden, {{"num_experts", "num_local_experts"}, "moe_intermediate_size"});
  experts.routing.normalize = normalize;
  const int64_t width = reader.positive("shared_expert_intermediate_size", 512, kMostShared);
  const auto shared =
      channels::gated_mlp({.hidden = hidden, .intermediate = width, .module = "mlp.shared_expert"});
  return channels::experts(experts, shared, "mlp.shared_expert_gate");
}

}  // namespace temper::models
