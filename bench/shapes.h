#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/json/json.h"
#include "checkpoints/hf_folder.h"
#include "models/model.h"

// Models that benchmarks run: known shapes with random weights, or folders.
namespace temper {

struct BenchShape {
  const char* name;
  const char* type;
  int64_t vocab, hidden, inner, layers, heads, kv_heads, head_dim;
  bool tied;
  int64_t experts = 0, top_k = 0;  // of a mixture
  int64_t expert_inner = 0;        // 0: experts are as wide as `inner`
  int64_t latent = 0;              // of latent attention, as Moonlight has it: the rank of keys and values
};

// The published config.json files of these models.
inline constexpr BenchShape kBenchShapes[] = {
    {"qwen3-0.6b", "qwen3", 151936, 1024, 3072, 28, 16, 8, 128, true},
    {"qwen3-1.7b", "qwen3", 151936, 2048, 6144, 28, 16, 8, 128, true},
    {"qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, 128, false},
    {"qwen3-32b", "qwen3", 151936, 5120, 25600, 64, 64, 8, 128, false},
    {"qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 64, true},
    {"qwen2.5-1.5b", "qwen2", 151936, 1536, 8960, 28, 12, 2, 128, true},
    {"qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 128, false},
    {"qwen3-30b-a3b-12", "qwen3_moe", 151936, 2048, 768, 12, 32, 4, 128, false, 128,
     8},  // its first 12 layers
    {"qwen3-30b-a3b", "qwen3_moe", 151936, 2048, 768, 48, 32, 4, 128, false, 128, 8},
    {"moonlight-16b-a3b", "deepseek_v3", 163840, 2048, 11264, 27, 16, 16, 128, false, 64, 6, 1408, 512},
    {"small", "qwen3", 32000, 512, 1536, 8, 8, 4, 64, true},
    {"demo", "qwen3", 512, 128, 384, 4, 4, 2, 32, true},
};

inline const BenchShape& bench_shape(const std::string& name) {
  for (const BenchShape& shape : kBenchShapes)
    if (name == shape.name) return shape;
  fail("unknown shape '{}'", name);
}

inline Json config_of(const BenchShape& s, int64_t length) {
  Json config = Json::Object{{"model_type", s.type},
                             {"vocab_size", s.vocab},
                             {"hidden_size", s.hidden},
                             {"intermediate_size", s.inner},
                             {"num_hidden_layers", s.layers},
                             {"num_attention_heads", s.heads},
                             {"num_key_value_heads", s.kv_heads},
                             {"head_dim", s.head_dim},
                             {"max_position_embeddings", std::max<int64_t>(length, 4096)},
                             {"rope_theta", 1e6},
                             {"tie_word_embeddings", s.tied}};
  if (s.experts > 0) {
    config.set("moe_intermediate_size", s.expert_inner > 0 ? s.expert_inner : s.inner);
    config.set(s.latent > 0 ? "n_routed_experts" : "num_experts", s.experts);
    config.set("num_experts_per_tok", s.top_k);
    config.set("norm_topk_prob", true);
  }
  if (s.latent > 0) {
    config.set("kv_lora_rank", s.latent);
    config.set("q_lora_rank", Json());
    config.set("qk_nope_head_dim", s.head_dim);
    config.set("qk_rope_head_dim", 64);
    config.set("v_head_dim", s.head_dim);
    config.set("n_shared_experts", 2);
    config.set("first_k_dense_replace", 1);
    config.set("n_group", 1);
    config.set("topk_group", 1);
    config.set("routed_scaling_factor", 2.446);
    config.set("scoring_func", "sigmoid");
    config.set("topk_method", "noaux_tc");
    config.set("rope_theta", 5e4);
  }
  return config;
}

// Models are a shape's name, or a path (with a slash) to a folder in Hugging Face's format. `layers` above 0
// is a shape's number of them.
inline bool is_folder(const std::string& model) { return model.find('/') != std::string::npos; }

inline BenchShape bench_shape(const std::string& model, int64_t layers) {
  BenchShape shape = bench_shape(model);
  if (layers > 0) shape.layers = layers;
  return shape;
}

inline layers::DecoderConfig bench_config(const std::string& model, int64_t length, int64_t layers) {
  return is_folder(model) ? models::configure(checkpoints::read_model_config(model), model)
                          : models::configure(config_of(bench_shape(model, layers), length), model);
}

inline std::unique_ptr<models::Model> bench_model(const std::string& model, int64_t length,
                                                  const models::BuildOptions& options, int64_t layers = 0) {
  if (is_folder(model)) return models::load_model(model, options);
  auto made = models::build_model(config_of(bench_shape(model, layers), length), model, options);
  made->decoder.parameters().initialize(1, 0.02);
  return made;
}

}  // namespace temper
