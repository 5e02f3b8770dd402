#include "models/deepseek_v3/mixture.h"

#include "channels/gated_mlp/gated_mlp.h"

namespace temper::models {
namespace {

constexpr int64_t kMostExperts = int64_t{1} << 16, kMostInner = int64_t{1} << 24;

void check_groups(const ConfigReader& reader, const ops::Routing& r) {
  if (r.experts % r.groups != 0)
    reader.refuse("n_group",
                  fmt::format("is {}, which does not divide n_routed_experts = {}", r.groups, r.experts));
  if (r.top_groups > r.groups)
    reader.refuse("topk_group", fmt::format("is {}, more than n_group = {}", r.top_groups, r.groups));
  // A group counts as much as its two best experts.
  if (r.experts / r.groups < 2)
    reader.refuse("n_group",
                  fmt::format("is {}; each of them needs 2 of n_routed_experts = {}", r.groups, r.experts));
  if (const int64_t most = r.experts / r.groups * r.top_groups; r.top_k > most)
    reader.refuse("num_experts_per_tok",
                  fmt::format("is {}, more than the {} experts of topk_group = {} groups", r.top_k, most,
                              r.top_groups));
}

// The sizes of experts, where the file says nothing those of the family.
channels::ExpertsConfig read_routed(ConfigReader& reader, int64_t hidden) {
  channels::ExpertsConfig config;
  config.hidden = hidden;
  config.float32_router = config.correction_bias = true;
  ops::Routing& routing = config.routing;
  routing.sigmoid = true;
  routing.experts = reader.positive("n_routed_experts", 256, kMostExperts);
  routing.top_k = reader.positive("num_experts_per_tok", 8, kMostExperts);
  config.width = reader.positive("moe_intermediate_size", 2048, kMostInner);
  routing.groups = reader.positive("n_group", 8, kMostExperts);
  routing.top_groups = reader.positive("topk_group", 4, kMostExperts);
  routing.normalize = reader.boolean("norm_topk_prob", true);
  routing.scaling = static_cast<float>(reader.number("routed_scaling_factor", 2.5));
  return config;
}

}  // namespace

DeepseekMixture read_mixture(ConfigReader& reader, int64_t hidden, int64_t num_layers) {
  DeepseekMixture mixture{reader.integer("first_k_dense_replace", 3), nullptr};
  if (mixture.first_layer < 0)
    reader.refuse("first_k_dense_replace", fmt::format("is {}, expected 0 or more", mixture.first_layer));
  const channels::ExpertsConfig config = read_routed(reader, hidden);
  const int64_t num_shared = reader.positive("n_shared_experts", 1, kMostExperts);
  // Keys that older code published together with weights reads; transformers supports these routers only.
  reader.expect("scoring_func", "sigmoid", "routers of this model_type have sigmoid scores only");
  reader.expect("topk_method", "noaux_tc", "routers of this model_type choose by noaux_tc only");
  reader.expect("moe_layer_freq", 1, "every layer from first_k_dense_replace on is a mixture");
  for (const char* key : {"num_mtp_layers", "output_router_logits"}) reader.find(key);  // of no pass
  if (mixture.first_layer < num_layers) check_groups(reader, config.routing);
  mixture.channel = channels::experts(config, channels::gated_mlp({.hidden = hidden,
                                                                   .intermediate = config.width * num_shared,
                                                                   .module = "mlp.shared_experts"}));
  return mixture;
}

}  // namespace temper::models
