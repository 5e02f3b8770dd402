#pragma once
#include "data/rows/pack.h"
#include "tests/support/tiny_model.h"

// Models and rows large enough that a plan of their memory means something.
namespace temper::recipes {

inline Json medium_config(const char* type = "qwen3") {
  Json::Object config = tiny_config(type).as_object();
  for (auto& [key, value] : config) {
    if (key == "hidden_size") value = 256;
    if (key == "intermediate_size") value = 768;
    if (key == "head_dim") value = 64;
    if (key == "num_hidden_layers" || key == "first_k_dense_replace") value = 4;
    if (key == "q_lora_rank") value = 96;
    if (key == "kv_lora_rank" || key == "qk_nope_head_dim" || key == "v_head_dim") value = 64;
    if (key == "qk_rope_head_dim") value = 32;
    if (key == "vocab_size") value = 2048;
    if (key == "max_position_embeddings") value = 256;
  }
  if (config.front().second == Json("granite"))
    for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling"})
      config.emplace_back(key, 0.6);
  return config;
}

inline data::PackedRow row_of(int64_t tokens) {
  data::PackedRow row;
  row.document_lengths = {tokens};
  for (int64_t i = 0; i < tokens; ++i) {
    row.ids.push_back(static_cast<int32_t>(i * 37 % 2048));
    row.targets.push_back(static_cast<int32_t>((i + 1) * 37 % 2048));
  }
  return row;
}

}  // namespace temper::recipes
