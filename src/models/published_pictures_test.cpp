// Configurations of published models that also read pictures: sizes and keys are facts of their config.json
// files (towers are cut short), the numbers of parameters are those of the text that transformers makes of
// them.
#include <gtest/gtest.h>

#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

struct PublishedPictures {
  const char* name;
  int64_t parameters;  // of the text
  const char* unused;  // as the one line lists them
  const char* text;    // how files begin the names of the text
  const char* config;
  const char* means;  // of layers::describe
};

// clang-format off
const PublishedPictures kModels[] = {
    {"Qwen/Qwen3.5-27B", 26895998464,
     "full_attention_interval, mamba_ssm_dtype, mtp_num_hidden_layers, mtp_use_dedicated_embeddings",
     "model.language_model.",
     R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5",
         "text_config": {"attention_bias": false, "attention_dropout": 0.0, "dtype": "bfloat16", "eos_token_id":
         248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 5120,
         "initializer_range": 0.02, "intermediate_size": 17408, "layer_types": ["linear_attention",
         "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention",
         "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention",
         "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",
         "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
         "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention",
         "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention",
         "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",
         "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
         "linear_attention", "linear_attention", "full_attention", "linear_attention", "linear_attention",
         "linear_attention", "full_attention", "linear_attention", "linear_attention", "linear_attention",
         "full_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention",
         "linear_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention",
         "linear_attention", "linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
         "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
         "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mamba_ssm_dtype": "float32",
         "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
         "num_attention_heads": 24, "num_hidden_layers": 64, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
         "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
         "rope_theta": 10000000, "rope_type": "default"}, "tie_word_embeddings": false, "use_cache": true,
         "vocab_size": 248320}, "tie_word_embeddings": false, "transformers_version": "4.57.0.dev0",
         "video_token_id": 248057, "vision_config": {"depth": 27, "model_type": "qwen3_5"}, "vision_end_token_id":
         248054, "vision_start_token_id": 248053})",
     R"({"tie_word_embeddings": false})"},
    {"Qwen/Qwen3-VL-4B-Instruct", 4022468096, "", "model.language_model.",
     R"({"architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
         "text_config": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16",
         "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
         "intermediate_size": 9728, "max_position_embeddings": 262144, "model_type": "qwen3_vl_text",
         "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
         "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
         "rope_theta": 5000000, "tie_word_embeddings": true, "use_cache": true, "vocab_size": 151936},
         "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0", "video_token_id": 151656, "vision_config":
         {"depth": 24, "model_type": "qwen3_vl"}, "vision_end_token_id": 151653, "vision_start_token_id": 151652})",
     R"({"rope_theta": 5000000.0, "tie_word_embeddings": true, "head_dim": 128})"},
    {"Qwen/Qwen3-VL-30B-A3B-Instruct", 30532122624, "", "model.language_model.",
     R"({"architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id": 151655, "model_type":
         "qwen3_vl_moe", "text_config": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
         "decoder_sparse_step": 1, "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
         "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 262144,
         "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 768, "norm_topk_prob": true,
         "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
         "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": {"mrope_interleaved": true, "mrope_section":
         [24, 20, 20], "rope_type": "default"}, "rope_theta": 5000000, "use_cache": true, "vocab_size": 151936},
         "tie_word_embeddings": false, "video_token_id": 151656, "vision_config": {"depth": 27, "model_type":
         "qwen3_vl_moe"}, "vision_end_token_id": 151653, "vision_start_token_id": 151652})",
     R"({"rope_theta": 5000000.0, "tie_word_embeddings": false})"},
    {"Qwen/Qwen2.5-VL-7B-Instruct", 7615616512, "", "model.",
     R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
         "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id":
         151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 3584,
         "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 128000, "max_window_layers":
         28, "model_type": "qwen2_5_vl", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
         "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": false,
         "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vision_config": {"depth": 32},
         "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 152064})",
     R"({"rope_theta": 1000000.0, "sliding_window": 0, "tie_word_embeddings": false})"},
    {"Qwen/Qwen2.5-VL-3B-Instruct", 3085938688, "", "model.",
     R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
         "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id":
         151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 2048,
         "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000, "max_window_layers":
         70, "model_type": "qwen2_5_vl", "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
         "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vision_config": {"depth": 32},
         "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936})",
     R"({"sliding_window": 0, "tie_word_embeddings": true})"},
    {"Qwen/Qwen2-VL-2B-Instruct", 1543714304, "", "model.",
     R"({"architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
         "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id":
         151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 1536,
         "initializer_range": 0.02, "intermediate_size": 8960, "max_position_embeddings": 32768, "max_window_layers":
         28, "model_type": "qwen2_vl", "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
         "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vision_config": {"depth": 32},
         "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936})",
     R"({"tie_word_embeddings": true})"},
    {"google/gemma-3-4b-it", 3880263168, "", "language_model.model.",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
         "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
         "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type":
         "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
         "sliding_window": 1024}, "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152}})",
     R"({"tie_word_embeddings": true, "head_dim": 256})"},
    {"google/gemma-3-27b-it", 27009346304, "", "language_model.model.",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
         "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
         "model_type": "gemma3", "text_config": {"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
         "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
         "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
         "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152}})",
     R"({"head_dim": 128})"},
    {"mistralai/Mistral-Small-3.1-24B-Instruct-2503", 23572403200, "", "language_model.model.",
     R"({"architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10, "model_type": "mistral3",
         "multimodal_projector_bias": false, "projector_hidden_act": "gelu", "spatial_merge_size": 2, "text_config":
         {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range":
         0.02, "intermediate_size": 32768, "max_position_embeddings": 131072, "model_type": "mistral",
         "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
         "rope_theta": 1000000000.0, "sliding_window": null, "use_cache": true, "vocab_size": 131072}, "torch_dtype":
         "bfloat16", "vision_config": {"hidden_size": 1024}, "vision_feature_layer": -1})",
     R"({"rope_theta": 1000000000.0, "sliding_window": 0, "tie_word_embeddings": false})"},
};
// clang-format on

TEST(PublishedPictures, TextIsRead) {
  for (const PublishedPictures& model : kModels) {
    SCOPED_TRACE(model.name);
    const Json config = Json::parse(model.config, model.name), means = Json::parse(model.means, model.name);
    const layers::DecoderConfig decoder = configure(config, "config.json");
    const WeightTable table = layers::decoder_weight_table(decoder);
    int64_t parameters = 0;
    for (const WeightSpec& spec : table.specs()) parameters += spec.shape.numel();
    EXPECT_EQ(parameters, model.parameters);
    const Json found = layers::describe(decoder);
    for (const auto& [key, value] : means.as_object()) {
      ASSERT_NE(found.find(key), nullptr) << key;
      EXPECT_EQ(*found.find(key), value) << key;
    }
    EXPECT_EQ(table.specs().front().sources.front().name, "model.language_model.embed_tokens.weight");
    EXPECT_EQ(table.name_in_files("model.language_model.norm.weight"),
              std::string(model.text) + "norm.weight");
    testing::internal::CaptureStderr();
    report_unused(config, "config.json");
    const std::string unused = model.unused;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              unused.empty()
                  ? ""
                  : "[config.json] keys without effect, kept when the model is saved: " + unused + "\n");
  }
}

// Every sixth layer sees all tokens, by a rotation of its own.
TEST(PublishedPictures, Gemma3HasItsPatternOfLayers) {
  const layers::DecoderConfig decoder =
      configure(Json::parse(kModels[6].config, kModels[6].name), "config.json");
  const Json described = layers::describe(decoder);
  const Json::Array& windows = described.at("sliding_window").as_array();
  ASSERT_EQ(windows.size(), 34u);
  for (size_t i = 0; i < windows.size(); ++i)
    EXPECT_EQ(windows[i], Json(int64_t{(i + 1) % 6 == 0 ? 0 : 1024})) << "layer " << i;
}

}  // namespace
}  // namespace temper::models
