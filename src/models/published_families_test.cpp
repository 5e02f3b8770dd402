// Configurations of published checkpoints of families with features of their own: sizes and keys are facts of
// their config.json files, the numbers of parameters are those of the models that transformers makes of them.
#include <gtest/gtest.h>

#include "models/config_reader.h"
#include "models/model.h"

namespace temper::models {
namespace {

struct PublishedFamily {
  const char* name;
  int64_t parameters;
  const char* unused;  // as the one line lists them
  const char* config;
  const char* means;  // of layers::describe
};

// clang-format off
const PublishedFamily kFamilies[] = {
    {"mistralai/Mistral-7B-v0.1", 7241732096, "",
     R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings":
         32768, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
         "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2})",
     R"({"sliding_window": 4096})"},
    {"mistralai/Mistral-7B-Instruct-v0.3", 7248023552, "",
     R"({"model_type": "mistral", "vocab_size": 32768, "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings":
         32768, "hidden_act": "silu", "attention_dropout": 0.0, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
         "sliding_window": null, "bos_token_id": 1, "eos_token_id": 2})",
     R"({"sliding_window": 0})"},
    {"mistralai/Mistral-Small-24B-Base-2501", 23572403200, "",
     R"({"model_type": "mistral", "vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings":
         32768, "head_dim": 128, "hidden_act": "silu", "attention_dropout": 0.0, "rms_norm_eps": 1e-05, "rope_theta":
         100000000.0, "sliding_window": null, "bos_token_id": 1, "eos_token_id": 2})",
     R"({"sliding_window": 0, "head_dim": 128})"},
    {"microsoft/Phi-3-mini-4k-instruct", 3821079552, "attention_bias",
     R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings":
         4096, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "embd_pdrop": 0.0,
         "resid_pdrop": 0.0, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null,
         "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false, "bos_token_id": 1,
         "eos_token_id": 32000, "pad_token_id": 32000})",
     R"({"sliding_window": 2047})"},
    {"microsoft/phi-4", 14659507200, "attention_bias",
     R"({"model_type": "phi3", "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 17920,
         "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10, "max_position_embeddings":
         16384, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "embd_pdrop": 0.0,
         "resid_pdrop": 0.0, "original_max_position_embeddings": 16384, "rms_norm_eps": 1e-05, "rope_scaling": null,
         "rope_theta": 250000, "sliding_window": null, "bos_token_id": 100257, "eos_token_id": 100265, "pad_token_id":
         100349})",
     R"({"sliding_window": 0, "rope_theta": 250000.0})"},
    {"HuggingFaceTB/SmolLM3-3B", 3075098624, "max_window_layers",
     R"({"model_type": "smollm3", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
         "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings":
         65536, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false,
         "max_window_layers": 28, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0,
         1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], "layer_types": ["full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
         "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"], "pretraining_tp":
         2, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
         "use_sliding_window": false, "bos_token_id": 128000, "eos_token_id": 128012, "pad_token_id": 128004})",
     R"({"partial_rotary_factor": [null, null, null, 0.0, null, null, null, 0.0, null, null, null, 0.0, null, null,
         null, 0.0, null, null, null, 0.0, null, null, null, 0.0, null, null, null, 0.0, null, null, null, 0.0, null,
         null, null, 0.0]})"},
    {"allenai/OLMo-2-0425-1B", 1484916736, "",
     R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings":
         4096, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "rms_norm_eps": 1e-06,
         "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false, "eos_token_id": 100257,
         "pad_token_id": 100277})",
     R"({"norms of all heads": true})"},
    {"allenai/OLMo-2-1124-13B", 13716198400, "",
     R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 13824,
         "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40, "max_position_embeddings":
         4096, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0, "rms_norm_eps": 1e-06,
         "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false, "eos_token_id": 100257,
         "pad_token_id": 100277})",
     R"({"norms of all heads": true})"},
    {"ibm-granite/granite-3.1-2b-instruct", 2533531648, "",
     R"({"model_type": "granite", "vocab_size": 49155, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings":
         131072, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.1, "attention_multiplier":
         0.015625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0, "mlp_bias": false,
         "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 5000000.0, "tie_word_embeddings": true,
         "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})",
     R"({"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_divisor": 8.0, "attention scale":
         0.015625})"},
    {"ibm-granite/granite-3.1-8b-instruct", 8170848256, "",
     R"({"model_type": "granite", "vocab_size": 49155, "hidden_size": 4096, "intermediate_size": 12800,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings":
         131072, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.1, "attention_multiplier":
         0.0078125, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 16.0, "mlp_bias":
         false, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000.0, "tie_word_embeddings": true,
         "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0})",
     R"({"logits_divisor": 16.0, "attention scale": 0.0078125})"},
    {"THUDM/GLM-4-9B-0414", 9400279040, "",
     R"({"model_type": "glm4", "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696,
         "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2, "max_position_embeddings":
         32768, "head_dim": 128, "hidden_act": "silu", "attention_bias": true, "attention_dropout": 0.0,
         "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
         "eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329})",
     R"({"partial_rotary_factor": 0.5})"},
    {"THUDM/GLM-4-32B-0414", 33141749760, "",
     R"({"model_type": "glm4", "vocab_size": 151552, "hidden_size": 6144, "intermediate_size": 23040,
         "num_hidden_layers": 61, "num_attention_heads": 48, "num_key_value_heads": 8, "max_position_embeddings":
         32768, "head_dim": 128, "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0,
         "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
         "eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329})",
     R"({"partial_rotary_factor": 0.5})"},
    {"google/gemma-3-1b-it", 999885952, "cache_implementation",
     R"({"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
         "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 32768,
         "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "attention_dropout": 0.0,
         "attn_logit_softcapping": null, "cache_implementation": "hybrid", "final_logit_softcapping": null,
         "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
         "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "bos_token_id": 2, "eos_token_id":
         [1, 106], "pad_token_id": 0})",
     R"({"sliding_window": [512, 512, 512, 512, 512, 0, 512, 512, 512, 512, 512, 0, 512, 512, 512, 512, 512, 0, 512,
         512, 512, 512, 512, 0, 512, 512], "rope_theta": [10000.0, 10000.0, 10000.0, 10000.0, 10000.0, 1000000.0,
         10000.0, 10000.0, 10000.0, 10000.0, 10000.0, 1000000.0, 10000.0, 10000.0, 10000.0, 10000.0, 10000.0,
         1000000.0, 10000.0, 10000.0, 10000.0, 10000.0, 10000.0, 1000000.0, 10000.0, 10000.0], "attention scale":
         0.0625})"},
    {"google/gemma-3-270m", 268098176, "",
     R"({"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048,
         "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 32768,
         "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "attention_dropout": 0.0,
         "attn_logit_softcapping": null, "final_logit_softcapping": null, "query_pre_attn_scalar": 256, "rms_norm_eps":
         1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": 512,
         "_sliding_window_pattern": 6, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
         "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
         "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
         "use_bidirectional_attention": false, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0})",
     R"({"sliding_window": [512, 512, 512, 512, 512, 0, 512, 512, 512, 512, 512, 0, 512, 512, 512, 512, 512, 0]})"},
    {"openai/gpt-oss-20b", 20914757184, "experts_per_token, initial_context_length",
     R"({"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
         "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings":
         131072, "head_dim": 64, "hidden_act": "silu", "attention_bias": true, "attention_dropout": 0.0,
         "experts_per_token": 4, "initial_context_length": 4096, "num_experts_per_tok": 4, "num_local_experts": 32,
         "output_router_logits": false, "router_aux_loss_coef": 0.9, "rms_norm_eps": 1e-05, "rope_theta": 150000,
         "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings":
         4096, "rope_type": "yarn", "truncate": false}, "sliding_window": 128, "swiglu_limit": 7.0,
         "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
         "tie_word_embeddings": false, "eos_token_id": 200002, "pad_token_id": 199999})",
     R"({"sinks of attention": true, "swiglu_limit": 7.0, "sliding_window": [128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0]})"},
    {"openai/gpt-oss-120b", 116829156672, "experts_per_token, initial_context_length",
     R"({"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
         "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings":
         131072, "head_dim": 64, "hidden_act": "silu", "attention_bias": true, "attention_dropout": 0.0,
         "experts_per_token": 4, "initial_context_length": 4096, "num_experts_per_tok": 4, "num_local_experts": 128,
         "output_router_logits": false, "router_aux_loss_coef": 0.9, "rms_norm_eps": 1e-05, "rope_theta": 150000,
         "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings":
         4096, "rope_type": "yarn", "truncate": false}, "sliding_window": 128, "swiglu_limit": 7.0,
         "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
         "tie_word_embeddings": false, "eos_token_id": 200002, "pad_token_id": 199999})",
     R"({"sinks of attention": true, "swiglu_limit": 7.0, "sliding_window": [128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0, 128, 0]})"},
};
// clang-format on

TEST(PublishedFamilies, AreRead) {
  for (const PublishedFamily& model : kFamilies) {
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
    testing::internal::CaptureStderr();
    report_unused(config, "config.json");
    const std::string unused = model.unused;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              unused.empty()
                  ? ""
                  : "[config.json] keys without effect, kept when the model is saved: " + unused + "\n");
  }
}

}  // namespace
}  // namespace temper::models
