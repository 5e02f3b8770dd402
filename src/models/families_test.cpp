// What families with features of their own read of a config.json, and what they refuse.
#include <array>

#include "models/config_reader.h"
#include "models/config_test_support.h"

namespace temper::models {
namespace {

// Norms, mixers, dense channels and experts of every form say the layer that their names have; what stands
// before and behind the layers says none. Critics are models, too.
TEST(Families, WeightsSayTheirLayer) {
  for (const char* type : {"llama", "qwen3_moe", "gpt_oss", "deepseek_v3", "qwen3_next"})
    for (const bool gives_values : {false, true}) {
      layers::DecoderConfig config = configure(with(type, "{}"), "config.json");
      config.gives_values = gives_values;
      std::array<int, 3> counts{};  // of each layer, and of none
      const WeightTable table = layers::decoder_weight_table(config);
      for (const WeightSpec& spec : table.specs()) {
        const std::string scope = spec.layer ? fmt::format("layers.{}.", *spec.layer) : "";
        EXPECT_EQ(spec.name.starts_with("layers."), spec.layer.has_value()) << type << ": " << spec.name;
        EXPECT_TRUE(spec.name.starts_with(scope)) << type << ": " << spec.name;
        ++counts.at(static_cast<size_t>(spec.layer.value_or(2)));
      }
      EXPECT_GE(counts[0], 6) << type;
      EXPECT_GE(counts[1], 6) << type;
      EXPECT_EQ(counts[2], gives_values || !config.tied_head ? 3 : 2) << type;
    }
}

TEST(Families, WindowsOfEveryLayer) {
  EXPECT_EQ(described("mistral").at("sliding_window"), Json(4096));  // transformers' default
  EXPECT_EQ(described("mistral", R"({"sliding_window": null})").at("sliding_window"), Json(0));
  EXPECT_EQ(described("mistral", R"({"sliding_window": 16})").at("sliding_window"), Json(16));
  EXPECT_EQ(described("phi3").at("sliding_window"), Json(0));
  EXPECT_EQ(described("phi3", R"({"sliding_window": 2047})").at("sliding_window"), Json(2047));
  for (const char* type : {"mistral", "phi3"}) {
    expect_refused(type, R"({"sliding_window": 0})",
                   "sliding_window is 0, expected a positive number or null");
    expect_refused(type, R"({"sliding_window": -1})",
                   "sliding_window is -1, expected a positive number or null");
    expect_refused(
        type, R"({"layer_types": ["full_attention", "full_attention"]})",
        "layer_types is [\"full_attention\", \"full_attention\"]; layers of this model_type are all alike");
  }
}

TEST(Families, HeadsThatAFileDoesNotSay) {
  // transformers has a number where the key is absent; null is as many as there are queries.
  EXPECT_EQ(described("glm4", R"({"num_attention_heads": 4, "head_dim": null})").at("head_dim"), Json(128));
  Json::Object config;
  const Json tiny = with("smollm3", "{}");
  for (const auto& [key, value] : tiny.as_object())
    if (key != "num_key_value_heads") config.emplace_back(key, value);
  EXPECT_EQ(layers::describe(configure(config, "config.json")).at("num_key_value_heads"), Json(4));
  EXPECT_EQ(described("smollm3", R"({"num_attention_heads": 8, "num_key_value_heads": null})")
                .at("num_key_value_heads"),
            Json(8));
}

TEST(Families, PartsOfHeads) {
  EXPECT_EQ(described("glm4").at("partial_rotary_factor"), Json(0.5));
  EXPECT_EQ(described("glm4").at("interleaved rotation"), Json(true));
  EXPECT_EQ(described("glm4", R"({"partial_rotary_factor": 0.25})").at("partial_rotary_factor"), Json(0.25));
  EXPECT_EQ(described("phi3").find("partial_rotary_factor"), nullptr);
  // The one in rope_parameters counts before the one next to it.
  EXPECT_EQ(described("phi3", R"({"partial_rotary_factor": 0.5, "rope_parameters":
                            {"rope_type": "default", "partial_rotary_factor": 0.75}})")
                .at("partial_rotary_factor"),
            Json(0.75));
  for (const char* type : {"glm4", "phi3"}) {
    expect_refused(
        type, R"({"partial_rotary_factor": 0.4})",
        "partial_rotary_factor is 0.4, which rotates 3 of a head of 8; needs an even number of at least 2");
    expect_refused(type, R"({"partial_rotary_factor": 2})",
                   "partial_rotary_factor is 2, expected a number from 0 to 1");
    expect_refused(type, R"({"rope_parameters": {"partial_rotary_factor": 1e300}})",
                   "partial_rotary_factor is 1e+300, expected a number from 0 to 1");
    expect_refused(type, R"({"partial_rotary_factor": 0})", "which rotates 0 of a head of 8");
    expect_refused(type, R"({"partial_rotary_factor": -1})",
                   "partial_rotary_factor is -1, expected 0 or more");
  }
  for (const char* type : {"mistral", "granite", "olmo2", "smollm3"})
    expect_refused(type, R"({"partial_rotary_factor": 0.5})",
                   "partial_rotary_factor is 0.5; rotating a part");
}

TEST(Families, Phi3HasNoLongRope) {
  expect_refused("phi3", R"({"rope_scaling": {"type": "longrope", "long_factor": [1], "short_factor": [1]}})",
                 "rope type 'longrope' is not supported");
  expect_refused("phi3", R"({"rope_scaling": {"type": "su", "long_factor": [1], "short_factor": [1]}})",
                 "rope type 'su' is not supported");
  // Which transformers reads as LongRoPE.
  expect_refused("phi3", R"({"rope_scaling": {"type": "yarn", "factor": 2}})",
                 "rope_scaling has a type that is not supported for this model_type; only 'default' is");
}

TEST(Families, Phi3HasDropoutInTrainingAlone) {
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) {
    const Json config = with("phi3", fmt::format(R"({{"{}": 0.1}})", key));
    configure(config, "config.json");
    expect_has(error_of([&] { configure(config, "config.json", Purpose::kTraining); }),
               fmt::format("[config.json] {} is 0.1; this dropout is not supported in training", key));
  }
}

TEST(Families, LayersWithoutRotation) {
  const auto factors = [](const std::string& changes) {
    return described("smollm3", R"({"num_hidden_layers": 4)" + changes + "}").at("partial_rotary_factor");
  };
  EXPECT_EQ(factors(""), Json(Json::Array{Json(), Json(), Json(), 0.0}));
  EXPECT_EQ(factors(R"(, "no_rope_layer_interval": 2)"), Json(Json::Array{Json(), 0.0, Json(), 0.0}));
  EXPECT_EQ(factors(R"(, "no_rope_layers": [0, 1, 1, 0])"), Json(Json::Array{0.0, Json(), Json(), 0.0}));
  // A window is that of layers without rotation, unless layer_types says.
  const std::string window = R"("use_sliding_window": true, "sliding_window": 8, "no_rope_layers": [1, 0])";
  EXPECT_EQ(described("smollm3", "{" + window + "}").at("sliding_window"), Json(Json::Array{0, 8}));
  EXPECT_EQ(
      described("smollm3", "{" + window + R"(, "layer_types": ["sliding_attention", "full_attention"]})")
          .at("sliding_window"),
      Json(Json::Array{8, 0}));
  expect_refused("smollm3", R"({"no_rope_layers": [1]})",
                 "no_rope_layers must list num_hidden_layers = 2 numbers");
  expect_refused("smollm3", R"({"no_rope_layers": [1, 2]})",
                 "no_rope_layers has 2 for layer 1; expected 1 or 0");
  expect_refused("smollm3", R"({"no_rope_layer_interval": 0})",
                 "no_rope_layer_interval is 0, expected a positive");
  expect_refused("smollm3", R"({"use_sliding_window": true, "sliding_window": 0})",
                 "sliding_window is 0, expected a positive number");
  expect_refused("smollm3", R"({"layer_types": ["sliding_attention", "full_attention"]})",
                 "has sliding_attention for layer 0, but use_sliding_window or sliding_window is not set");
}

TEST(Families, Multipliers) {
  const Json granite = described("granite", R"({"embedding_multiplier": 12, "attention_multiplier": 0.25,
                                           "residual_multiplier": 0.22, "logits_scaling": 8})");
  EXPECT_EQ(granite.at("embedding_multiplier"), Json(12.0));
  EXPECT_EQ(granite.at("attention scale"), Json(0.25));
  EXPECT_EQ(granite.at("residual_multiplier"), Json(0.22));
  EXPECT_EQ(granite.at("logits_divisor"), Json(8.0));
  EXPECT_EQ(described("granite").at("attention scale"), Json(1.0));  // not that of heads
  for (const char* key :
       {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"})
    expect_refused("granite", fmt::format(R"({{"{}": 0}})", key),
                   fmt::format("{} is 0, expected a positive number", key));
}

TEST(Families, NormsBehindModules) {
  const Json norms = described("olmo2").at("norms");
  EXPECT_EQ(norms.at("input_norm"), Json(""));
  EXPECT_EQ(norms.at("channel_norm"), Json("post_feedforward_layernorm"));
  EXPECT_EQ(described("olmo2").at("norms of all heads"), Json(true));
  EXPECT_EQ(described("llama").find("norms"), nullptr);
}

constexpr const char* kGemma = R"({"num_hidden_layers": 3)";

TEST(Families, GemmaHasRotationsByTypeOfLayer) {
  const auto gemma = [](const std::string& more) { return described("gemma3_text", kGemma + more + "}"); };
  const Json usual = gemma(R"(, "rope_theta": null, "sliding_window": 8, "sliding_window_pattern": 3)");
  EXPECT_EQ(usual.at("sliding_window"), Json(Json::Array{8, 8, 0}));
  EXPECT_EQ(usual.at("rope_theta"), Json(Json::Array{1e4, 1e4, 1e6}));
  EXPECT_EQ(usual.at("attention scale"), Json(0.0625));
  EXPECT_EQ(usual.at("hidden_act"), Json("gelu_pytorch_tanh"));
  EXPECT_EQ(usual.at("norm_offset"), Json(1.0));
  const std::string types = R"(, "sliding_window": 8,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"])";
  const Json old_way = gemma(types + R"(, "rope_theta": 5e5, "rope_local_base_freq": 2e4,
                                       "rope_scaling": {"rope_type": "linear", "factor": 8})");
  const Json new_way = gemma(types + R"(, "rope_theta": null, "rope_parameters":
      {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 5e5},
       "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})");
  EXPECT_EQ(old_way, new_way);
  EXPECT_EQ(new_way.at("rope_theta"), Json(Json::Array{5e5, 2e4, 5e5}));
  EXPECT_EQ(new_way.at("rope factor"), Json(Json::Array{8.0, Json(), 8.0}));
}

TEST(Families, GemmaRefuses) {
  const auto refused = [](const std::string& more, const std::string& with) {
    expect_refused("gemma3_text", kGemma + (", " + more) + "}", with);
  };
  refused(R"("final_logit_softcapping": 30.0)", "final_logit_softcapping is 30.0; soft caps of logits");
  refused(R"("attn_logit_softcapping": 50.0)",
          "attn_logit_softcapping is 50.0; soft caps of attention scores");
  refused(R"("use_bidirectional_attention": true)",
          "use_bidirectional_attention is true; attention to later");
  refused(R"("hidden_activation": "gelu")",
          "hidden_activation is 'gelu'; only 'gelu_pytorch_tanh' is supported");
  refused(R"("query_pre_attn_scalar": 0)", "query_pre_attn_scalar is 0, expected a positive number");
  refused(R"("sliding_window": 0)", "sliding_window is 0, expected a positive number");
  refused(R"("sliding_window_pattern": 0)", "sliding_window_pattern is 0, expected a positive number");
  refused(R"("rope_parameters": {"rope_type": "default"})",
          "rope_parameters has rope_type; use full_attention");
  refused(R"("rope_parameters": {"full_attention": {"rope_type": "dynamic"}})",
          "rope_parameters.full_attention rope type 'dynamic' is not supported");
  refused(R"("rope_scaling": {"rope_type": "linear", "factor": 8}, "rope_parameters": {})",
          "rope_scaling and rope_parameters are both given");
  expect_refused("gemma2", "{}", "model_type 'gemma2' is not supported");
}

// transformers rounds the factor to the weights' dtype before it multiplies.
TEST(Families, GemmaRoundsTheScaleOfEmbeddings) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    BuildOptions options;
    options.dtype = dtype;
    const auto model =
        build_model(with("gemma3_text", R"({"rope_theta": null, "hidden_size": 12})"), "tiny", options);
    auto& parameters = model->decoder.parameters();
    parameters.initialize(7, 0.5);
    for (const float start : parameters.value("norm.weight").to(DType::kF32).values<float>())
      EXPECT_EQ(start, 0);
    Tape tape(false);
    std::vector<Tensor> hidden;
    layers::Decoder::Options pass;
    pass.hidden_states = &hidden;
    model->decoder.forward(tape, layers::make_input(std::vector{5}, std::vector{1}), pass);
    const Tensor row = parameters.value("embedding.weight").narrow(0, 5, 1).to(DType::kF32),
                 found = hidden.front().to(DType::kF32);
    const float factor = dtype == DType::kF32 ? 3.4641016f : 3.46875f;
    for (int64_t i = 0; i < 12; ++i) {
      const float product = row.data<float>()[i] * factor;
      EXPECT_EQ(found.data<float>()[i],
                dtype == DType::kF32 ? product : static_cast<float>(BFloat16(product)));
    }
  }
}

}  // namespace
}  // namespace temper::models
