#include <gtest/gtest.h>

#include <cmath>

#include "models/adapter.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/paged_text.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

Json with(const std::string& changes) {
  Json config = tiny_config("deepseek_v3");
  const Json parsed = Json::parse(changes, "changes");
  for (const auto& [key, value] : parsed.as_object()) config.set(key, value);
  return config;
}

Json read(const std::string& changes) { return layers::describe(configure(with(changes), "config.json")); }

void expect_refused(const std::string& changes, const std::string& message) {
  expect_has(error_of([&] { read(changes); }), message);
}

TEST(DeepseekV3, SizesAreThoseOfTheFileOrTheFamilys) {
  const Json json = read("{}");
  EXPECT_EQ(json.at("q_lora_rank"), Json(12));
  EXPECT_EQ(json.at("eps of the latents' norms"), Json(1e-6));
  EXPECT_EQ(json.at("rope_interleave"), Json(true));
  Json bare = tiny_config("deepseek_v3");
  Json::Object rest;
  for (const auto& [key, value] : bare.as_object())
    if (key.find("_rank") == std::string::npos && key.find("_head_dim") == std::string::npos)
      rest.emplace_back(key, value);
  const Json family = layers::describe(configure(rest, "config.json"));
  for (const auto& [key, value] : {std::pair{"q_lora_rank", 1536},
                                   {"kv_lora_rank", 512},
                                   {"qk_nope_head_dim", 128},
                                   {"qk_rope_head_dim", 64},
                                   {"v_head_dim", 128}})
    EXPECT_EQ(family.at(key), Json(value)) << key;
  EXPECT_EQ(read(R"({"q_lora_rank": null})").at("q_lora_rank"), Json(0));
  EXPECT_EQ(read(R"({"rope_interleave": null})").at("rope_interleave"), Json(false));
  EXPECT_EQ(read(R"({"rms_norm_eps": 1e-3})").at("eps of the latents' norms"), Json(1e-6));
}

// cos and sin have the ratio of both factors; scores have the square of the one for all dimensions.
TEST(DeepseekV3, YarnScalesScoresByTheFactorForAllDimensions) {
  const auto scale = [](const std::string& rope) {
    return read(R"({"rope_scaling": {"factor": 40, "original_max_position_embeddings": 16, )" + rope + "}}")
        .at("softmax scale")
        .as_double();
  };
  const double plain = 1 / std::sqrt(10.0), factor = 0.1 * 0.7 * std::log(40.0) + 1;
  EXPECT_NEAR(scale(R"("type": "yarn", "mscale": 1.4, "mscale_all_dim": 0.7)"), plain * factor * factor,
              1e-12);
  EXPECT_NEAR(scale(R"("type": "yarn", "mscale": 1.4)"), plain, 1e-12);
  EXPECT_NEAR(scale(R"("type": "yarn", "mscale_all_dim": 0)"), plain, 1e-12);
  EXPECT_NEAR(scale(R"("type": "linear")"), plain, 1e-12);
  expect_refused(
      R"({"rope_scaling": {"type": "linear", "factor": 4, "mscale_all_dim": 1}})",
      "[config.json] rope_scaling mscale_all_dim is 1; it is supported with rope type 'yarn' alone");
}

TEST(DeepseekV3, MistakesAreRefusedByName) {
  expect_refused(R"({"num_key_value_heads": 2})", "num_key_value_heads is 2; latent attention has keys for");
  expect_refused(R"({"qk_rope_head_dim": 5})",
                 "qk_rope_head_dim is 5; rotary embedding needs an even number");
  expect_refused(R"({"kv_lora_rank": 0})", "kv_lora_rank is 0, expected 1 to");
  expect_refused(R"({"v_head_dim": "8"})", "v_head_dim is \"8\", expected an integer");
  expect_refused(R"({"first_k_dense_replace": -1})", "first_k_dense_replace is -1, expected 0 or more");
  expect_refused(R"({"scoring_func": "softmax"})", "scoring_func is \"softmax\"; routers of this model_type");
  expect_refused(R"({"topk_method": "greedy"})", "topk_method is \"greedy\"; routers of this model_type");
  expect_refused(R"({"moe_layer_freq": 2})", "moe_layer_freq is 2; every layer from");
}

TEST(DeepseekV3, RoutingThatCannotBeIsRefused) {
  const auto expect = [](const std::string& changes, const std::string& message) {
    Json config =
        with(R"({"first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 4, "topk_group": 2})");
    const Json parsed = Json::parse(changes, "changes");
    for (const auto& [key, value] : parsed.as_object()) config.set(key, value);
    expect_has(error_of([&] { configure(config, "config.json"); }), message);
  };
  expect(R"({"n_group": 3})", "n_group is 3, which does not divide n_routed_experts = 8");
  expect(R"({"n_group": 8})", "n_group is 8; each of them needs 2 of n_routed_experts = 8");
  expect(R"({"topk_group": 5})", "topk_group is 5, more than n_group = 4");
  expect(R"({"num_experts_per_tok": 5})",
         "num_experts_per_tok is 5, more than the 4 experts of topk_group = 2 groups");
  const Json fits = with(R"({"first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 4,
                             "topk_group": 2, "num_experts_per_tok": 4})");
  EXPECT_EQ(error_of([&] { configure(fits, "config.json"); }), "");
}

constexpr int64_t kTokens = 12, kPrompt = 7;
const std::vector<int32_t> kIds{3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3};

// Of each token, by one pass over all of them.
Tensor whole(const Model& model, const layers::Adapter* adapter) {
  Tape tape(false);
  layers::Decoder::Options options;
  if (adapter != nullptr) options.adapters = {{adapter, kTokens}};
  const auto input = layers::make_input(kIds, std::vector{static_cast<int32_t>(kTokens)});
  return model.decoder.logits(tape, model.decoder.forward(tape, input, options), adapter).value;
}

// Of each token behind the prompt, one by one by the form for decoding.
Tensor by_steps(const Model& model, const layers::Adapter* adapter, PagedText& text) {
  const layers::Decoder& decoder = model.decoder;
  Tape tape(false);
  text.prompt(tape, std::span(kIds).first(static_cast<size_t>(kPrompt)));
  const Tensor logits = Tensor::empty({kTokens - kPrompt, decoder.config().vocab_size}, DType::kF32);
  for (int64_t at = kPrompt; at < kTokens; ++at) {
    const Var hidden = text.decode(tape, kIds[static_cast<size_t>(at)]);
    logits.narrow(0, at - kPrompt, 1).copy_from(decoder.logits(tape, hidden, adapter).value);
  }
  return logits;
}

struct Variant {
  const char* changes = "{}";
  bool eager = true;
  std::optional<primitives::FrozenFormat> base_dtype = {};
};

std::unique_ptr<Model> build(const Variant& variant) {
  BuildOptions options;
  options.dtype = DType::kF32;
  if (variant.eager) options.ops = TinyModel().ops;
  options.base_dtype = variant.base_dtype;
  auto model = build_model(with(variant.changes), "tiny", options);
  model->decoder.parameters().initialize(7, 0.3);
  return model;
}

void expect_steps_as_whole(const Model& model, const layers::Adapter* adapter) {
  PagedText text(model.decoder, kTokens, adapter);
  const Tensor expected = whole(model, adapter).narrow(0, kPrompt, kTokens - kPrompt);
  EXPECT_LE(relative_error(by_steps(model, adapter, text), expected), 2e-5);
  text.begin();  // what is there is written over
  EXPECT_LE(relative_error(by_steps(model, adapter, text), expected), 2e-5);
}

constexpr const char* kVariants[] = {
    "{}", R"({"q_lora_rank": null})", R"({"q_lora_rank": null, "attention_bias": true})",
    R"({"attention_bias": true, "rope_interleave": false, "rope_scaling": {"type": "yarn", "factor": 4,
        "mscale": 1, "mscale_all_dim": 0.5, "original_max_position_embeddings": 16}})"};

TEST(DeepseekV3, DecodingIsAsOnePassOverAllTokens) {
  for (const char* changes : kVariants)
    for (const bool eager : {true, false}) {
      SCOPED_TRACE(fmt::format("{} with {} kernels", changes, eager ? "eager" : "fast"));
      expect_steps_as_whole(*build({changes, eager}), nullptr);
    }
}

TEST(DeepseekV3, DecodingWithWeightsIn8Bits) {
  for (const bool eager : {true, false})
    expect_steps_as_whole(*build({"{}", eager, primitives::FrozenFormat::kFloat8}), nullptr);
}

// An adapter of kv_b changes what a latent expands to; one that trains a copy of it, too.
TEST(DeepseekV3, DecodingWithAdapters) {
  for (const bool eager : {true, false})
    for (const auto& [targets, saved] :
         {std::pair<std::vector<std::string>, std::vector<std::string>>{{"kv_b_proj"}, {}},
          {{"q_a_proj", "o_proj", "kv_a_proj_with_mqa"}, {}},
          {{"q_b_proj"}, {"kv_b_proj", "kv_a_layernorm"}}}) {
      const auto model = build({"{}", eager});
      const LoraConfig config{.rank = 3, .targets = {.names = targets}, .modules_to_save = saved};
      const auto adapter = new_adapter(*model, config, 1, "");
      adapter->parameters().initialize(5, 0.3);
      EXPECT_GT(relative_error(whole(*model, adapter.get()), whole(*model, nullptr)), 1e-2);
      SCOPED_TRACE(fmt::format("{} with {} kernels", targets.front(), eager ? "eager" : "fast"));
      expect_steps_as_whole(*model, adapter.get());
    }
}

// Documents that continue one prompt see its latents, as if each had a prompt of its own.
TEST(DeepseekV3, ASharedPromptIsComputedOnce) {
  const auto model = build({});
  const auto logits = [&](const std::vector<int32_t>& ids, const std::vector<int32_t>& lengths,
                          std::vector<int32_t> continued) {
    Tape tape(false);
    const auto input = layers::make_input(ids, lengths, std::move(continued));
    return model->decoder.logits(tape, model->decoder.forward(tape, input)).value;
  };
  const Tensor shared = logits({3, 14, 15, 9, 26, 5, 35}, {4, 1, 2}, {-1, 0, 0});
  const Tensor first = logits({3, 14, 15, 9, 26}, {5}, {}), second = logits({3, 14, 15, 9, 5, 35}, {6}, {});
  EXPECT_LE(relative_error(shared.narrow(0, 0, 5), first), 2e-6);
  EXPECT_LE(relative_error(shared.narrow(0, 5, 2), second.narrow(0, 4, 2)), 2e-6);
}

}  // namespace
}  // namespace temper::models
