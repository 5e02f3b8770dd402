#include "models/config_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

// The tiny configuration of a family with some keys set ("null" removes one).
Json with(const char* type, const std::string& changes) {
  Json::Object object = tiny_config(type).as_object();
  const Json parsed = Json::parse(changes, "changes");
  for (const auto& [key, value] : parsed.as_object()) {
    const auto same = [&key = key](const auto& member) { return member.first == key; };
    std::erase_if(object, same);
    object.emplace_back(key, value);
  }
  return object;
}

layers::DecoderConfig read(const char* type, const std::string& changes = "{}") {
  return configure(with(type, changes), "config.json");
}

std::string refusal(const char* type, const std::string& changes) {
  const std::string message = error_of([&] { read(type, changes); });
  return message.empty() ? "accepted" : message;
}

void expect_refused(const char* type, const std::string& changes, const std::string& with) {
  EXPECT_NE(refusal(type, changes).find(with), std::string::npos) << changes << "\n"
                                                                  << refusal(type, changes);
}

TEST(ModelConfig, FamiliesDiffer) {
  const auto llama = read("llama"), qwen2 = read("qwen2"), qwen3 = read("qwen3");
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(llama.qk_norm || qwen2.qk_norm);
  const auto biased = read("llama", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  // Without head_dim: the width split over the heads, but 128 in qwen3.
  EXPECT_EQ(read("llama", R"({"head_dim": null})").head_dim, 8);
  EXPECT_EQ(read("qwen3", R"({"head_dim": null})").head_dim, 128);
}

TEST(ModelConfig, EveryKeyIsKnownOrRefused) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    expect_refused(type, R"({"rms_norm_epss": 1e-5})", "did you mean 'rms_norm_eps'");
    expect_refused(type, R"({"quantization_config": {"bits": 4}})",
                   "quantized checkpoints are not supported");
    EXPECT_EQ(refusal(type, R"({"use_cache": true, "torch_dtype": "bfloat16", "architectures": ["X"],
                                "transformers_version": "4.40", "bos_token_id": 1, "eos_token_id": [1, 2]})"),
              "accepted");
  }
}

TEST(ModelConfig, OtherFamiliesAreRefusedWithTheList) {
  expect_refused("gpt_neox", "{}", "'gpt_neox' is not supported; supported are [llama, qwen2, qwen3]");
  expect_refused("llama", R"({"model_type": null})", "model_type is missing");
}

TEST(ModelConfig, ValuesAreChecked) {
  expect_refused("llama", R"({"hidden_size": null})", "hidden_size is missing");
  expect_refused("llama", R"({"hidden_size": "32"})", "expected an integer");
  expect_refused("llama", R"({"hidden_size": -32})", "expected 1 to");
  expect_refused("llama", R"({"num_key_value_heads": 3})", "does not divide num_attention_heads = 4");
  expect_refused("llama", R"({"head_dim": 7})", "even number");
  expect_refused("llama", R"({"hidden_act": "gelu"})", "only 'silu'");
  expect_refused("llama", R"({"attention_dropout": 0.1})", "dropout is not supported");
  expect_refused("llama", R"({"rms_norm_eps": true})", "expected a number");
  expect_refused("qwen2", R"({"use_sliding_window": 1})", "expected true or false");
}

TEST(ModelConfig, BothSpellingsOfRotaryAgree) {
  const auto old_way =
      read("llama", R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}})");
  const auto new_way = read("llama", R"({"rope_theta": null, "rope_parameters": {"rope_theta": 5e5,
      "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 32}})");
  EXPECT_EQ(layers::rope_inverse_frequencies(old_way.rope, 8),
            layers::rope_inverse_frequencies(new_way.rope, 8));
  EXPECT_EQ(old_way.rope.type, layers::RopeType::kLlama3);
  EXPECT_EQ(new_way.rope.theta, 5e5);
  // The oldest name of the type, and none at all.
  EXPECT_EQ(read("llama", R"({"rope_scaling": {"type": "linear", "factor": 2}})").rope.type,
            layers::RopeType::kLinear);
  EXPECT_EQ(read("llama", R"({"rope_scaling": null})").rope.type, layers::RopeType::kDefault);
}

TEST(ModelConfig, RotaryMistakesAreRefused) {
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})", "'longrope'");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear"}})", "factor is missing");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "beta_fast": 3}})",
                 "key 'beta_fast' is not known");
  expect_refused("llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})", "positive");
  expect_refused("llama", R"({"rope_scaling": [1]})", "expected an object");
  expect_refused("llama", R"({"rope_theta": -1})", "rope_theta");
}

TEST(ModelConfig, WindowsByLayerTypesOrByCount) {
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(read("qwen2").windows, (Windows{0, 0}));
  EXPECT_EQ(
      read("qwen2", R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1})").windows,
      (Windows{0, 16}));
  EXPECT_EQ(read("qwen3", R"({"use_sliding_window": true, "sliding_window": 16,
                              "layer_types": ["sliding_attention", "full_attention"]})")
                .windows,
            (Windows{16, 0}));
  // A window that is written but switched off has no effect.
  EXPECT_EQ(
      read("qwen2", R"({"use_sliding_window": false, "sliding_window": 16, "max_window_layers": 0})").windows,
      (Windows{0, 0}));
  expect_refused("qwen3", R"({"layer_types": ["full_attention"]})", "num_hidden_layers = 2");
  expect_refused("qwen3", R"({"layer_types": ["full_attention", "linear_attention"]})", "'linear_attention'");
  expect_refused("qwen3", R"({"layer_types": ["full_attention", "sliding_attention"]})",
                 "use_sliding_window is not true");
}

}  // namespace
}  // namespace temper::models
