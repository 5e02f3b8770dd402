#include "models/config_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "models/config_test_support.h"
#include "models/model.h"

namespace temper::models {
namespace {

constexpr const char *kQkvBias = "biases of q, k and v", *kOutputBias = "bias of o";

TEST(ModelConfig, FamiliesDiffer) {
  const auto llama = described("llama"), qwen2 = described("qwen2"), qwen3 = described("qwen3");
  EXPECT_EQ(llama.at(kQkvBias), Json(false));
  EXPECT_EQ(qwen2.at(kQkvBias), Json(true));
  EXPECT_EQ(qwen2.at(kOutputBias), Json(false));
  for (const auto& [family, norms] : {std::pair(llama, false), {qwen2, false}, {qwen3, true}})
    EXPECT_EQ(family.at("norms of q and k"), Json(norms));
  const auto biased = described("llama", R"({"attention_bias": true, "mlp_bias": true})");
  for (const char* key : {kQkvBias, kOutputBias, "mlp_bias"}) EXPECT_EQ(biased.at(key), Json(true));
  // Without head_dim: the width split over the heads, but 128 in qwen3.
  EXPECT_EQ(described("llama", R"({"head_dim": null})").at("head_dim"), Json(8));
  EXPECT_EQ(described("qwen3", R"({"head_dim": null})").at("head_dim"), Json(128));
}

std::string reported(const char* type, const std::string& changes) {
  testing::internal::CaptureStderr();
  report_unused(with(type, changes), "config.json");
  return testing::internal::GetCapturedStderr();
}

TEST(ModelConfig, KeysThatNothingReadsHaveNoEffectAndAreListed) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    EXPECT_EQ(reported(type, R"({"use_cache": true, "torch_dtype": "bfloat16", "architectures": ["X"],
                                 "transformers_version": "4.40", "bos_token_id": 1, "eos_token_id": [1, 2],
                                 "quantization_config": null, "is_causal": true})"),
              "");
    EXPECT_EQ(reported(type, R"({"use_mrope": true, "_comment": "a copy", "rope_scaling":
                                 {"type": "default", "factor": 8, "mrope_section": [1, 2]}})"),
              "[config.json] keys without effect, kept when the model is saved: use_mrope, _comment, "
              "rope_scaling.factor, rope_scaling.mrope_section\n");
    EXPECT_EQ(reported(type, R"({"hiden_act": "gelu"})"),
              "[config.json] keys without effect, kept when the model is saved: hiden_act\n"
              "warning: [config.json] 'hiden_act' has no effect; did you mean 'hidden_act'?\n");
  }
  // Qwen2 has biases on q, k and v whatever these say, as in transformers.
  EXPECT_EQ(reported("qwen2", R"({"attention_bias": false, "mlp_bias": true})"),
            "[config.json] keys without effect, kept when the model is saved: attention_bias, mlp_bias\n");
}

TEST(ModelConfig, UnsupportedKeysAreRefusedByNameAndValue) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    expect_refused(type, R"({"quantization_config": {"quant_method": "hqq", "bits": 4}})",
                   "[config.json] quantization_config: quant_method is \"hqq\", expected one of [modelopt, ");
    expect_refused(type, R"({"quantization_config": {"bits": 4}})", "quant_method is missing, expected one");
    expect_refused(type, R"({"is_causal": false})", "is_causal is false; attention to later tokens");
    expect_refused(type, R"({"partial_rotary_factor": 0.5})",
                   "partial_rotary_factor is 0.5; rotating a part");
    expect_refused(type, R"({"per_layer_config": {"0": {"head_dim": 4}}})", "per_layer_config is {\"0\"");
    expect_refused(type, R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
                   "rope_parameters has full_attention = {");
    expect_refused(type, R"({"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 0.5}})",
                   "rope_scaling has partial_rotary_factor = 0.5");
  }
  expect_refused("llama", R"({"attention_chunk_size": 8})", "attention_chunk_size is 8; attention in chunks");
  expect_refused("llama", R"({"sliding_window": 16})", "sliding_window is 16; layers of this model_type see");
  expect_refused("llama", R"({"layer_types": ["full_attention", "sliding_attention"]})",
                 "layer_types has \"sliding_attention\"");
  EXPECT_EQ(refusal("llama", R"({"sliding_window": 64})"), "accepted");
  EXPECT_EQ(refusal("llama", R"({"sliding_window": 16, "use_sliding_window": false})"), "accepted");
}

TEST(ModelConfig, BoundsAreCheckedBeforeAnythingIsBuilt) {
  expect_refused("llama", R"({"num_hidden_layers": 1000000})",
                 "num_hidden_layers is 1000000, expected 1 to 4096");
  expect_refused("llama", R"({"num_hidden_layers": 9223372036854775807})", "expected 1 to 4096");
  expect_refused("qwen2", R"({"vocab_size": 100000000})", "vocab_size is 100000000, expected 1 to 16777216");
  expect_refused("qwen3", R"({"intermediate_size": 0})", "intermediate_size is 0, expected 1 to");
  expect_refused("qwen3", R"({"head_dim": -8})", "head_dim is -8, expected 1 to 4096");
  expect_refused("llama", R"({"num_attention_heads": 1000000})", "expected 1 to 16384");
  expect_refused("llama", R"({"rms_norm_eps": -1e-5})", "rms_norm_eps is -1e-05, expected 0 or more");
  expect_refused("llama", R"({"initializer_range": -0.1})", "initializer_range is -0.1, expected 0 or more");
  expect_refused("qwen2", R"({"use_sliding_window": true, "max_window_layers": -1})", "expected 0 or more");
  expect_refused("llama", R"({"rope_scaling": {"type": "yarn", "factor": 2,
                              "original_max_position_embeddings": 1e300}})",
                 "original_max_position_embeddings is 1e+300, expected 1 to 2147483648");
}

TEST(ModelConfig, TokenIdsBeyondTheVocabularyAreWarnedOf) {
  EXPECT_EQ(reported("llama", R"({"eos_token_id": [1, 48], "bos_token_id": -2})"),
            "warning: [config.json] bos_token_id has -2, but the tokens are 0 to vocab_size - 1 = 47; it has "
            "no effect\n"
            "warning: [config.json] eos_token_id has 48, but the tokens are 0 to vocab_size - 1 = 47; it has "
            "no effect\n");
  EXPECT_EQ(reported("qwen3", R"({"pad_token_id": 32000})"),
            "warning: [config.json] pad_token_id has 32000, but the tokens are 0 to vocab_size - 1 = 47; it "
            "has no effect, but transformers may refuse to load such a model\n");
  EXPECT_EQ(reported("llama", R"({"pad_token_id": -1, "eos_token_id": 47})"), "");
  expect_refused("llama", R"({"bos_token_id": "<s>"})",
                 "bos_token_id has \"<s>\", expected a token's number from 0 to vocab_size - 1 = 47");
  expect_refused("llama", R"({"eos_token_id": [1, 2.5]})", "eos_token_id has 2.5");
}

TEST(ModelConfig, DropoutOfAttentionStopsTrainingAlone) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const Json config = with(type, R"({"attention_dropout": 0.1})");
    configure(config, "config.json");
    expect_has(error_of([&] { configure(config, "config.json", Purpose::kTraining); }),
               "[config.json] attention_dropout is 0.1; dropout of attention is not supported in training, "
               "set it to 0.0 in this file");
    configure(with(type, R"({"attention_dropout": 0})"), "config.json", Purpose::kTraining);
    expect_refused(type, R"({"attention_dropout": -0.1})", "attention_dropout is -0.1, expected 0 or more");
  }
}

TEST(ModelConfig, OtherFamiliesAreRefusedWithTheList) {
  expect_refused("gpt_neox", "{}",
                 "'gpt_neox' is not supported; supported are [" + join(supported_model_types()) + "]");
  expect_refused("llama", R"({"model_type": null})",
                 "model_type is missing; it must be one of [" + join(supported_model_types()) + "]");
  expect_refused("llama", R"({"model_type": 3})", "model_type is 3, expected a string");
  expect_has(error_of([] { configure(Json::Array{}, "config.json"); }), "expected an object, found an array");
}

TEST(ModelConfig, ValuesAreChecked) {
  expect_refused("llama", R"({"hidden_size": null})", "hidden_size is missing");
  expect_refused("llama", R"({"hidden_size": "32"})", "expected an integer");
  expect_refused("llama", R"({"hidden_size": -32})", "expected 1 to");
  expect_refused("llama", R"({"num_key_value_heads": 3})", "does not divide num_attention_heads = 4");
  expect_refused("llama", R"({"head_dim": 7})", "even number");
  expect_refused("llama", R"({"hidden_act": "gelu"})", "only 'silu'");
  expect_refused("llama", R"({"rms_norm_eps": true})", "expected a number");
  expect_refused("qwen2", R"({"use_sliding_window": 1})", "expected true or false");
}

TEST(ModelConfig, BothSpellingsOfRotaryAgree) {
  const auto old_way =
      described("llama", R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}})");
  const auto new_way = described("llama", R"({"rope_theta": null, "rope_parameters": {"rope_theta": 5e5,
      "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 32}})");
  EXPECT_EQ(old_way, new_way);
  EXPECT_EQ(old_way.at("rope_type"), Json("llama3"));
  EXPECT_EQ(new_way.at("rope_theta"), Json(5e5));
  // The oldest name of the type, and none at all.
  EXPECT_EQ(described("llama", R"({"rope_scaling": {"type": "linear", "factor": 2}})").at("rope_type"),
            Json("linear"));
  EXPECT_EQ(described("llama", R"({"rope_scaling": null})").at("rope_type"), Json("default"));
}

TEST(ModelConfig, RotarySpellingsBesideEachOther) {
  // transformers prefers the original length at the top level to the one in rope_scaling.
  const auto top_level =
      described("llama", R"({"original_max_position_embeddings": 16, "rope_scaling": {"type": "yarn",
      "factor": 2, "original_max_position_embeddings": 32}})");
  EXPECT_EQ(top_level.at("rope original_max_position_embeddings"), Json(16));
  EXPECT_EQ(described("llama", R"({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}})")
                .at("rope factor"),
            Json(2.0));
  EXPECT_EQ(described("llama", R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {}})")
                .at("rope factor"),
            Json(2.0));
}

TEST(ModelConfig, RotaryMistakesAreRefused) {
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})", "'longrope'");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear"}})", "factor is missing");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": 1}})",
                 "rope_scaling truncate is 1, expected true or false");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_parameters":
                              {"rope_type": "linear", "factor": 4}})",
                 "rope_scaling and rope_parameters are both given and differ");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})", "positive");
  expect_refused("llama", R"({"rope_scaling": [1]})", "expected an object");
  expect_refused("llama", R"({"rope_theta": -1})", "rope_theta");
}

TEST(ModelConfig, WindowsByLayerTypesOrByCount) {
  const auto windows = [](const char* type, const std::string& changes) {
    return described(type, changes).at("sliding_window");
  };
  EXPECT_EQ(windows("qwen2", "{}"), Json(0));
  EXPECT_EQ(windows("qwen2", R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1})"),
            Json(Json::Array{0, 16}));
  EXPECT_EQ(windows("qwen3", R"({"use_sliding_window": true, "sliding_window": 16,
                                 "layer_types": ["sliding_attention", "full_attention"]})"),
            Json(Json::Array{16, 0}));
  // A window that is written but switched off has no effect.
  EXPECT_EQ(
      windows("qwen2", R"({"use_sliding_window": false, "sliding_window": 16, "max_window_layers": 0})"),
      Json(0));
  expect_refused("qwen3", R"({"layer_types": ["full_attention"]})", "num_hidden_layers = 2");
  expect_refused("qwen3", R"({"layer_types": ["full_attention", "linear_attention"]})", "'linear_attention'");
  expect_refused("qwen3", R"({"layer_types": ["full_attention", "sliding_attention"]})",
                 "use_sliding_window is not true");
}

}  // namespace
}  // namespace temper::models
