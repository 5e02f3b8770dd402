// DeepSeek-V3: latent attention in every layer, gated MLPs in those before first_k_dense_replace, experts
// chosen by sigmoid scores in the others.
#include <cmath>

#include "channels/gated_mlp/gated_mlp.h"
#include "mixers/latent_attention/latent_attention.h"
#include "models/config_reader.h"
#include "models/deepseek_v3/mixture.h"
#include "models/model.h"

namespace temper::models {
namespace {

constexpr int64_t kMostHeadDim = 4096, kMostRank = int64_t{1} << 20, kMostPredictLayers = 64;
// transformers passes no eps to the norms of latents, whatever rms_norm_eps says.
constexpr double kLatentNormEps = 1e-6;

// Twice the factor for all dimensions belongs to the scores: once for queries and once for keys.
double softmax_scale(ConfigReader& reader, const layers::RopeConfig& rope, int64_t head_dim) {
  using layers::RopeType;
  if (rope.type != RopeType::kDefault && rope.type != RopeType::kYarn && rope.mscale_all_dim.value_or(0) != 0)
    reader.refuse(reader.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling",
                  fmt::format("mscale_all_dim is {}; it is supported with rope type 'yarn' alone",
                              *rope.mscale_all_dim));
  return std::pow(static_cast<double>(head_dim), -0.5) * layers::rope_softmax_scaling(rope);
}

mixers::LatentAttentionConfig read_attention(ConfigReader& reader, const DenseConfig& c) {
  mixers::LatentAttentionConfig config;
  config.hidden = c.hidden_size;
  config.num_heads = c.num_heads;
  if (c.num_kv_heads != c.num_heads)
    reader.refuse("num_key_value_heads",
                  fmt::format("is {}; latent attention has keys for each of num_attention_heads = {}",
                              c.num_kv_heads, c.num_heads));
  // Queries have a latent unless the file says null; where it says nothing, the family's default counts.
  if (!reader.is_null("q_lora_rank")) config.q_lora_rank = reader.positive("q_lora_rank", 1536, kMostRank);
  config.kv_lora_rank = reader.positive("kv_lora_rank", 512, kMostRank);
  config.qk_nope_head_dim = reader.positive("qk_nope_head_dim", 128, kMostHeadDim);
  config.qk_rope_head_dim = reader.positive("qk_rope_head_dim", 64, kMostHeadDim);
  config.v_head_dim = reader.positive("v_head_dim", 128, kMostHeadDim);
  reader.find("qk_head_dim");  // the sum of the two before, which transformers writes and computes
  if (config.qk_rope_head_dim % 2 != 0)
    reader.refuse("qk_rope_head_dim",
                  fmt::format("is {}; rotary embedding needs an even number", config.qk_rope_head_dim));
  config.bias = reader.boolean("attention_bias", false);
  config.norm_eps = kLatentNormEps;
  config.rope = c.rope;
  config.rope_interleave = !reader.is_null("rope_interleave") && reader.boolean("rope_interleave", true);
  config.softmax_scale = softmax_scale(reader, c.rope, config.qk_nope_head_dim + config.qk_rope_head_dim);
  return config;
}

layers::DecoderConfig configure_deepseek_v3(ConfigReader& reader) {
  DenseConfig c;
  c.head_dim = 2;  // where it is not written: latent attention has sizes of its own, and heads need not fill
                   // the hidden size
  read_decoder(reader, c, 10000);
  const auto mixer = mixers::latent_attention(read_attention(reader, c));
  const auto dense = channels::gated_mlp({c.hidden_size, c.intermediate_size});
  const DeepseekMixture mixture = read_mixture(reader, c.hidden_size, c.num_layers);
  layers::DecoderConfig decoder = without_blocks(c);
  for (int64_t layer = 0; layer < c.num_layers; ++layer)
    decoder.blocks.push_back({mixer, layer < mixture.first_layer ? dense : mixture.channel});
  // Layers that predict the tokens after the next one stand behind the last layer.
  const int64_t more = reader.integer("num_nextn_predict_layers", 0);
  if (more < 0 || more > kMostPredictLayers)
    reader.refuse("num_nextn_predict_layers",
                  fmt::format("is {}, expected 0 to {}", more, kMostPredictLayers));
  for (int64_t layer = c.num_layers; layer < c.num_layers + more; ++layer)
    decoder.published.kept_tensors.push_back(fmt::format("model.layers.{}.", layer));
  return decoder;
}

}  // namespace

void register_deepseek_v3() { registry<Family>().add("deepseek_v3", {configure_deepseek_v3}); }

}  // namespace temper::models
