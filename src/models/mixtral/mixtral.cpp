// Mixtral: attention as llama, experts chosen by softmax in every layer.
#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

layers::DecoderConfig configure_mixtral(ConfigReader& reader) {
  DenseConfig config;
  config.rms_norm_eps = 1e-5;
  read_decoder(reader, config, 1000000);
  if (const int64_t window = reader.integer("sliding_window", 0); window > 0)
    config.windows.assign(config.windows.size(), window);
  if (const double noise = reader.not_negative("router_jitter_noise", 0); noise > 0)
    reader.refuse_training("router_jitter_noise",
                           fmt::format("is {}; noise before the router is not supported in training, set it "
                                       "to 0.0 in this file to train without it",
                                       noise));
  channels::ExpertsConfig experts =
      read_experts(reader, config.hidden_size, {{"num_local_experts", "num_experts"}, "intermediate_size"});
  experts.routing.normalize = true;
  experts.module = "block_sparse_moe";
  experts.stacked_module = "mlp";
  experts.gate = "w1";
  experts.up = "w3";
  experts.down = "w2";
  const auto channel = channels::experts(experts);
  layers::DecoderConfig decoder = decoder_of(config, [&](int64_t) { return channel; });
  decoder.balance_factor = read_balance_factor(reader);
  return decoder;
}

}  // namespace

void register_mixtral() { registry<Family>().add("mixtral", {configure_mixtral}); }

}  // namespace temper::models
