#include "tests/support/tiny_model.h"

namespace temper {

Json tiny_config(const char* type) {
  Json config =
      Json::Object{{"model_type", type},       {"vocab_size", 48},       {"hidden_size", 32},
                   {"intermediate_size", 48},  {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                   {"num_key_value_heads", 2}, {"head_dim", 8},          {"max_position_embeddings", 64},
                   {"rms_norm_eps", 1e-6},     {"rope_theta", 10000.0},  {"tie_word_embeddings", true}};
  if (std::string_view(type) == "deepseek_v3")
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, int64_t>>{{"num_key_value_heads", 4},
                                                                {"q_lora_rank", 12},
                                                                {"kv_lora_rank", 10},
                                                                {"qk_nope_head_dim", 6},
                                                                {"qk_rope_head_dim", 4},
                                                                {"v_head_dim", 8},
                                                                {"first_k_dense_replace", 2}})
      config.set(key, value);
  if (std::string_view(type) == "qwen3_moe")
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, Json>>{{"num_experts", 6},
                                                             {"num_experts_per_tok", 2},
                                                             {"moe_intermediate_size", 16},
                                                             {"norm_topk_prob", true}})
      config.set(key, value);
  const std::string_view family = type;
  if (family == "gpt_oss")
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
             {"num_local_experts", 4},
             {"num_experts_per_tok", 2},
             {"sliding_window", 5},
             {"swiglu_limit", 1.5},
             {"rope_scaling", Json::Object{{"rope_type", "yarn"},
                                           {"factor", 4.0},
                                           {"truncate", false},
                                           {"original_max_position_embeddings", 16}}}})
      config.set(key, value);
  if (family == "qwen3_next" || family == "qwen3_5_text" || family == "qwen3_5_moe_text")
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
             {"layer_types", Json::Array{"linear_attention", "full_attention"}},
             {"linear_num_key_heads", 2},
             {"linear_num_value_heads", 4},
             {"linear_key_head_dim", 4},
             {"linear_value_head_dim", 6},
             {"linear_conv_kernel_dim", 4}})
      config.set(key, value);
  if (family == "qwen3_next" || family == "qwen3_5_moe_text")
    for (const auto& [key, value] :
         std::initializer_list<std::pair<const char*, int64_t>>{{"num_experts", 6},
                                                                {"num_experts_per_tok", 2},
                                                                {"moe_intermediate_size", 16},
                                                                {"shared_expert_intermediate_size", 8}})
      config.set(key, value);
  return config;
}

namespace {

void add_experts(Json& config) {
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"first_k_dense_replace", 1},
                                                              {"n_routed_experts", 8},
                                                              {"n_group", 4},
                                                              {"topk_group", 2},
                                                              {"num_experts_per_tok", 2},
                                                              {"moe_intermediate_size", 16},
                                                              {"n_shared_experts", 1}})
    config.set(key, value);
}

}  // namespace

std::unique_ptr<models::Model> tiny_model(const TinyModel& options) {
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.ops = options.ops;
  build.facts = options.facts;
  build.format = options.format;
  build.base_dtype = options.base_dtype;
  build.routers = options.routers;
  build.quantize = options.quantize;
  Json config = tiny_config(options.type);
  if (options.experts) add_experts(config);
  for (const auto& [key, value] : options.sizes) config.set(key, value);
  auto model = models::build_model(config, "tiny", build);
  model->decoder.parameters().initialize(7, options.deviation);
  return model;
}

}  // namespace temper
