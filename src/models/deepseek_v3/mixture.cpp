#include "models/deepseek_v3/mixture.h"

#include "channels/gated_mlp/gated_mlp.h"

namespace temper::models {
namespace {

constexpr int64_t kMostExperts = int64_t{1} << 16, kMostInner = int64_t{1} << 24;

void check_groups(const ConfigReader& reader, const DeepseekMixture& m) {
  if (m.num_experts % m.num_groups != 0)
    reader.refuse("n_group", fmt::format("is {}, which does not divide n_routed_experts = {}", m.num_groups,
                                         m.num_experts));
  if (m.groups_chosen > m.num_groups)
    reader.refuse("topk_group", fmt::format("is {}, more than n_group = {}", m.groups_chosen, m.num_groups));
  // A group counts as much as its two best experts.
  if (m.num_experts / m.num_groups < 2)
    reader.refuse("n_group", fmt::format("is {}; each of them needs 2 of n_routed_experts = {}", m.num_groups,
                                         m.num_experts));
  if (const int64_t most = m.num_experts / m.num_groups * m.groups_chosen; m.top_k > most)
    reader.refuse("num_experts_per_tok",
                  fmt::format("is {}, more than the {} experts of topk_group = {} groups", m.top_k, most,
                              m.groups_chosen));
}

}  // namespace

DeepseekMixture read_mixture(ConfigReader& reader, int64_t num_layers) {
  DeepseekMixture m;
  m.first_layer = reader.integer("first_k_dense_replace", 3);
  if (m.first_layer < 0)
    reader.refuse("first_k_dense_replace", fmt::format("is {}, expected 0 or more", m.first_layer));
  m.num_experts = reader.positive("n_routed_experts", 256, kMostExperts);
  m.top_k = reader.positive("num_experts_per_tok", 8, kMostExperts);
  m.intermediate = reader.positive("moe_intermediate_size", 2048, kMostInner);
  m.num_shared = reader.positive("n_shared_experts", 1, kMostExperts);
  m.num_groups = reader.positive("n_group", 8, kMostExperts);
  m.groups_chosen = reader.positive("topk_group", 4, kMostExperts);
  m.normalized = reader.boolean("norm_topk_prob", true);
  m.scale = reader.number("routed_scaling_factor", 2.5);
  // What older code beside published weights reads; transformers knows these routers alone.
  reader.expect("scoring_func", "sigmoid", "routers of this model_type have sigmoid scores only");
  reader.expect("topk_method", "noaux_tc", "routers of this model_type choose by noaux_tc only");
  reader.expect("moe_layer_freq", 1, "every layer from first_k_dense_replace on is a mixture");
  // Neither is part of a forward pass: layers for speculation behind the last one, and what it returns.
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers", "output_router_logits"})
    reader.find(key);
  if (m.first_layer < num_layers) check_groups(reader, m);
  return m;
}

std::shared_ptr<const layers::Channel> mixture_channel(const DeepseekMixture& mixture, int64_t hidden) {
  channels::ExpertsConfig config;
  config.hidden = hidden;
  config.width = mixture.intermediate;
  config.routing = {.experts = mixture.num_experts,
                    .top_k = mixture.top_k,
                    .sigmoid = true,
                    .groups = mixture.num_groups,
                    .top_groups = mixture.groups_chosen,
                    .normalize = mixture.normalized,
                    .scaling = static_cast<float>(mixture.scale)};
  config.float32_router = config.correction_bias = true;
  return channels::experts(config,
                           channels::gated_mlp({.hidden = hidden,
                                                .intermediate = mixture.intermediate * mixture.num_shared,
                                                .module = "mlp.shared_experts"}));
}

}  // namespace temper::models
