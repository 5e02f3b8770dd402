#include "rollout/pass_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "device/cpu_features.h"
#include "models/adapter.h"
#include "ops/linear/linear.h"
#include "rollout/batch_invariant.h"
#include "rollout/passes/op_trace.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

const ops::FieldValues kInvariantKernels = batch_invariant_fields("cpu", DType::kF32);

std::vector<std::vector<int32_t>> some_prompts() {
  std::vector<std::vector<int32_t>> prompts(3);
  for (int32_t i = 0; i < 80; ++i) prompts[0].push_back(i * 7 % 48);
  for (int32_t i = 0; i < 17; ++i) prompts[1].push_back((3 + i * 5) % 48);
  prompts[2] = {11};
  return prompts;
}

std::unique_ptr<models::Model> model_with(const char* type, const ops::OpsConfig& kernels) {
  auto model =
      tiny_model({.type = type, .ops = kernels, .sizes = {{"max_position_embeddings", Json(int64_t{256})}}});
  const bool invariant = model->decoder.ops().at<ops::Linear>("head").batch_invariant;
  EXPECT_EQ(invariant, has_cpu_feature("avx2") && has_cpu_feature("fma"));
  return invariant ? std::move(model) : nullptr;
}

// Latent attention expands all that is kept, again for each pass: these ops have rows of other tokens, too,
// and show in what reads them.
void expect_compared(const PassDifference& found, std::string_view type) {
  const std::set<std::string> expansions{"linear", "lora_linear", "latent_heads"};
  for (const std::string& op : found.not_compared)
    EXPECT_TRUE(type == "deepseek_v3" && expansions.contains(op)) << type << " " << op;
}

TEST(PassComparison, IsExactlyZeroWithBatchInvariantKernels) {
  for (const char* type :
       {"qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "qwen3_next", "qwen3_5_text", "deepseek_v3"}) {
    const auto model = model_with(type, {.written = kInvariantKernels});
    if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
    constexpr int64_t kTokens = 24;
    const PassComparison comparison(model->decoder,
                                    likeliest_answers(model->decoder, some_prompts(), kTokens));
    for (const int64_t batch : {1, 3, 20})
      for (const bool warm : {false, true}) {
        const PassDifference found = comparison.compare(batch, warm);
        EXPECT_TRUE(found.none()) << type << " " << batch << ": " << found.first_module;
        EXPECT_EQ(found.largest, 0);
        EXPECT_EQ(found.mean, 0);
        EXPECT_EQ(found.found > 0, warm);
        EXPECT_EQ(found.different_tokens, 0);
        EXPECT_EQ(found.first_op, "") << type << " " << found.first_op_place;
        expect_compared(found, type);
        EXPECT_EQ(found.tokens, kTokens * std::max<int64_t>(3, batch) * (warm ? 2 : 1));
        EXPECT_GT(comparison.seconds_per_pass(batch), 0);
      }
  }
}

// An adapter of everything that can be adapted, whose updates are not nothing.
std::unique_ptr<layers::Adapter> some_adapter(const models::Model& model, LoraConfig config, uint64_t seed) {
  auto adapter = models::new_adapter(model, config, seed, "");
  layers::ParameterStore& parameters = adapter->parameters();
  for (size_t i = 0; i < parameters.table().specs().size(); ++i) {
    const Random random(seed, RandomPurpose::kInitialization, i);
    uint64_t element = 0;
    for (float& value : parameters[i].value.values<float>())
      value += 0.8f * static_cast<float>(random.uniform(element++) - 0.5);
  }
  return adapter;
}

std::vector<GivenText> answers_of(const models::Model& model,
                                  const std::vector<const layers::Adapter*>& adapters, int64_t tokens) {
  std::vector<GivenText> all;
  for (const layers::Adapter* const adapter : adapters)
    for (GivenText& text : likeliest_answers(model.decoder, some_prompts(), tokens, adapter))
      all.push_back(std::move(text));
  return all;
}

// Texts of two adapters and of the model alone, in the same passes.
TEST(PassComparison, IsExactlyZeroWithAdapters) {
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next", "deepseek_v3"}) {
    const auto model = model_with(type, {.written = kInvariantKernels});
    if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
    const std::string queries = std::string_view(type) == "deepseek_v3" ? "q_b_proj" : "q_proj";
    LoraConfig all{.rank = 3, .alpha = 6}, some{.rank = 2, .alpha = 4, .targets = {.names = {queries}}};
    some.modules_to_save = {"lm_head", "o_proj"};
    if (std::string_view(type).ends_with("moe") || std::string_view(type) == "qwen3_next")
      some.parameters = {"experts.down_proj"};
    const auto first = some_adapter(*model, all, 3), second = some_adapter(*model, some, 4);
    const auto texts = answers_of(*model, {first.get(), nullptr, second.get()}, 6);
    EXPECT_NE(texts[0].answer, texts[3].answer);
    EXPECT_NE(texts[6].answer, texts[3].answer);
    const PassComparison comparison(model->decoder, texts);
    for (const int64_t batch : {1, 4, 9, 20})
      for (const bool warm : {false, true}) {
        const PassDifference found = comparison.compare(batch, warm);
        EXPECT_TRUE(found.none()) << type << " " << batch << ": " << verdict_of(found, batch);
        expect_compared(found, type);
        EXPECT_EQ(found.different_tokens, 0);
      }
  }
}

// The adapter of a text, not another and not the model alone, is what it is compared with.
TEST(PassComparison, NamesTheOpThatReadsAnotherAdapter) {
  for (const auto& [names, parameters, op, place] :
       {std::tuple{"q_proj", "", "lora_linear", "layers.0.attention.qkv"},
        {"none", "experts.gate_up_proj", "lora_moe_experts", "layers.0.mlp.experts.gate_up"}}) {
    const auto model = model_with("qwen3_moe", {.written = kInvariantKernels});
    if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
    LoraConfig config{.rank = 2, .alpha = 4, .targets = {.names = {names}}};
    if (*parameters != '\0') config.parameters = {parameters};
    if (std::string_view(names) == "none") config.targets.names.clear();
    const auto adapter = some_adapter(*model, config, 3);
    const PassComparison comparison(model->decoder, answers_of(*model, {adapter.get(), nullptr}, 4));
    for (float& value : adapter->parameters()[0].value.values<float>()) value += 1e-3f;
    const PassDifference found = comparison.compare(6, false);
    EXPECT_EQ(found.first_op, op);
    EXPECT_EQ(found.first_op_place, place);
    EXPECT_GT(found.largest, 0);
    EXPECT_LT(found.different_tokens, found.tokens);  // those of the model alone do not
  }
}

// An unused result is a difference, too.
TEST(PassComparison, ExactlyZeroIsSaidWhereNoOpDiffers) {
  const auto model = model_with("qwen3", {.written = kInvariantKernels});
  if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  layers::ParameterStore& parameters = model->decoder.parameters();
  for (float& value : parameters.value("layers.1.attention.output.weight").values<float>()) value = 0;
  const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 4));
  const PassDifference same = comparison.compare(3, false);
  EXPECT_EQ(verdict_of(same, 3),
            "exactly 0: log-probabilities of rollouts are those of training, bit for bit");
  for (float& value : parameters.value("layers.1.attention.qkv.weight").values<float>()) value += 1e-3f;
  const PassDifference found = comparison.compare(3, false);
  EXPECT_EQ(found.largest, 0);
  EXPECT_EQ(found.first_module, "");
  EXPECT_FALSE(found.none());
  EXPECT_EQ(
      verdict_of(found, 3),
      "log-probabilities are the same, bit for bit, but results on the way to them differ with 3 answers "
      "at once; the first module that differs is -, the first op linear, layers.1.attention.qkv");
}

// A dense model, a mixture and a hybrid, cold and warm, on both sides of each number of rows at which kernels
// change.
TEST(PassComparison, IsExactlyZeroForAnyNumberOfAnswers) {
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"}) {
    const auto model = model_with(type, {.written = kInvariantKernels});
    if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
    const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 3));
    for (const int64_t batch : {2, 8, 9, 16, 17, 33, 65, 129, 1024})
      for (const bool warm : {false, true}) {
        const PassDifference found = comparison.compare(batch, warm);
        EXPECT_TRUE(found.none()) << type << " " << batch << (warm ? " warm: " : ": ") << found.first_module
                                  << " " << found.first_op;
        EXPECT_TRUE(found.not_compared.empty()) << type << " " << found.not_compared.front();
        EXPECT_EQ(found.different_tokens, 0);
      }
  }
}

struct Other {
  const char *modules, *field, *provider;
  const char* first;
  int64_t layer;
  const char *op, *place;
};

// Another kernel for one op of one layer: the module it is in is named.
TEST(PassComparison, NamesTheFirstModuleThatDiffers) {
  const Other cases[] = {
      {"layers.1.*", "paged_attention", "eager", "layer 1, mixer", 1, "paged_attention",
       "layers.1.attention"},
      {"layers.0.*", "paged_attention", "eager", "layer 0, mixer", 0, "paged_attention",
       "layers.0.attention"},
      {"layers.1.mlp.*", "linear", "onednn", "layer 1, channel", 1, "linear", "layers.1.mlp.gate_up"},
      {"layers.1.mlp.down", "linear", "onednn", "layer 1, channel", 1, "linear", "layers.1.mlp.down"}};
  for (const char* type : {"qwen3", "qwen3_moe"})
    for (const Other& other : cases) {
      if (std::string_view(type) == "qwen3_moe" && std::string_view(other.field) == "linear") continue;
      const auto model = model_with(type, {.written = kInvariantKernels,
                                           .overrides = {{other.modules, {{other.field, other.provider}}}}});
      if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
      const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 12));
      // From three rows on the usual kernel may multiply as the batch-invariant one does.
      const PassDifference found = comparison.compare(2, false);
      EXPECT_EQ(found.first_module, other.first) << type << " " << other.modules;
      EXPECT_EQ(found.first_layer, other.layer);
      EXPECT_EQ(found.first_op, other.op) << type << " " << other.modules;
      EXPECT_EQ(found.first_op_place, other.place) << type << " " << other.modules;
      EXPECT_GT(found.first_largest, 0);
      EXPECT_GT(found.largest, 0);
      EXPECT_LT(found.largest, 1e-3);
      EXPECT_GT(found.mean, 0);
      EXPECT_GT(found.different_tokens, 0);
      EXPECT_LE(found.different_tokens, found.tokens);
      EXPECT_LT(found.mean, found.largest);
      EXPECT_FALSE(found.none());
    }
}

TEST(PassComparison, ForcesTheAnswersThatAreGiven) {
  const auto model = tiny_model();
  Request request;
  request.prompt = {1, 2, 3};
  request.forced = {7, 7, 40, 0};
  request.max_new_tokens = 6;
  Engine engine(model->decoder, {});
  engine.add(request);
  while (engine.step()) {
  }
  const Completion found = engine.take_finished().at(0);
  ASSERT_EQ(found.ids.size(), 6u);
  EXPECT_EQ(std::vector<int32_t>(found.ids.begin(), found.ids.begin() + 4), request.forced);
  // What follows is sampled behind the forced tokens, whose log-probabilities are their own.
  request.prompt = {1, 2, 3, 7, 7, 40, 0};
  request.forced = {};
  request.max_new_tokens = 2;
  engine.add(request);
  while (engine.step()) {
  }
  EXPECT_EQ(engine.take_finished().at(0).ids, std::vector<int32_t>(found.ids.begin() + 4, found.ids.end()));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_LT(found.columns.rollout_log_probs[i], found.columns.rollout_log_probs[4]);
  request.forced = {48};
  expect_has(error_of([&] { engine.add(request); }), "token id 48 is outside the vocabulary [0, 48)");
}

TEST(PassComparison, ModelsThatDecodeByAnotherFormulaDiffer) {
  const auto model =
      tiny_model({.type = "qwen3_next", .sizes = {{"max_position_embeddings", Json(int64_t{256})}}});
  const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 12));
  const PassDifference found = comparison.compare(2, false);
  EXPECT_EQ(found.first_module, "layer 0, mixer");  // gated delta
  EXPECT_EQ(found.first_op, "recurrent_gated_delta_rule");
  EXPECT_EQ(found.first_op_place, "layers.0.delta");
  EXPECT_LT(found.largest, 1e-3);
}

// One number of a weight is another one in rollouts: the op that reads it is named.
TEST(PassComparison, NamesTheOpThatReadsAnotherWeight) {
  const std::pair<const char*, const char*> cases[] = {
      {"layers.1.attention.output", "linear"},         {"layers.0.post_attention_norm", "rms_norm"},
      {"layers.1.mlp.experts.gate_up", "moe_experts"}, {"layers.1.mlp.gate", "linear"},
      {"layers.0.delta.conv", "causal_conv1d"},        {"embedding", "embedding"}};
  std::set<std::string> changed;
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"})
    for (const auto& [place, op] : cases) {
      const auto model = model_with(type, {.written = kInvariantKernels});
      if (model == nullptr) GTEST_SKIP() << "this processor has no batch-invariant kernels";
      layers::ParameterStore& parameters = model->decoder.parameters();
      const auto& specs = parameters.table().specs();
      const auto spec =
          std::find_if(specs.begin(), specs.end(), [name = std::string(place)](const auto& each) {
            return each.name == name || each.name == name + ".weight";
          });
      if (spec == specs.end()) continue;
      changed.insert(place);
      const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 4));
      const Tensor weight = parameters[static_cast<size_t>(spec - specs.begin())].value;
      for (float& value : weight.values<float>()) value += 1e-3f;
      const PassDifference found = comparison.compare(3, false);
      EXPECT_EQ(std::string_view(found.first_op).substr(0, std::string_view(op).size()), op) << type;
      EXPECT_EQ(found.first_op_place, place) << type;
    }
  EXPECT_EQ(changed.size(), std::size(cases));
}

// Ops that have a row for each expert that a token chose are compared token by token, and named.
TEST(PassComparison, NamesOpsWithARowForEachChoice) {
  // They read what quantizers made of the weights, which has no name of its own.
  for (const auto& [weight, place] : {std::pair{"layers.0.mlp.experts.gate_up.weight", "layers.0.mlp"},
                                      {"layers.1.mlp.experts.down.weight", "layers.1.mlp"}}) {
    TinyModel tiny{.type = "qwen3_moe",
                   .quantize = {"MXFP8_DEFAULT"},
                   .sizes = {{"moe_intermediate_size", Json(int64_t{32})},
                             {"max_position_embeddings", Json(int64_t{256})}}};
    tiny.ops = {.written = kInvariantKernels};
    tiny.ops.written["rounded_experts"] = "eager";
    const auto model = tiny_model(tiny);
    if (!has_cpu_feature("avx2") || !has_cpu_feature("fma"))
      GTEST_SKIP() << "this processor has no batch-invariant kernels";
    ASSERT_TRUE(is_batch_invariant(model->decoder));
    model->decoder.quantizers().set_ready();
    const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 4));
    const PassDifference same = comparison.compare(3, false);
    EXPECT_TRUE(same.none()) << verdict_of(same, 3);
    EXPECT_TRUE(same.not_compared.empty()) << same.not_compared.front();
    for (float& value : model->decoder.parameters().value(weight).values<float>()) value *= 1.5f;
    const PassDifference found = comparison.compare(3, false);
    EXPECT_EQ(found.first_op, "expert_linear");
    EXPECT_EQ(found.first_op_place, place);
    EXPECT_GT(found.largest, 0);
  }
}

// Every op that a pass over pages ran by a kernel of a module is one that was compared.
TEST(PassComparison, HearsEveryOpOfAPass) {
  for (const ops::OpsConfig& kernels : {ops::OpsConfig(), ops::all_eager()})
    for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next", "deepseek_v3"}) {
      const auto model = tiny_model({.type = type, .ops = kernels});
      OpTrace trace(model->decoder);
      Tape tape;
      std::set<std::string> heard;
      {
        const ops::OpListener::Scope listens(trace);
        const layers::DecoderInput input =
            layers::make_input(std::vector<int32_t>{1, 2, 3, 4, 5}, std::vector<int32_t>{5});
        const Var hidden = model->decoder.forward(tape, input, layers::Decoder::Options{});
        model->decoder.logits(tape, hidden);
      }
      for (const OpResult& each : trace.take(5)) {
        heard.insert(each.op);
        EXPECT_TRUE(each.compares()) << type << ": " << each.op << ", " << each.place;
      }
      const std::set<std::string> elsewhere{"adamw",
                                            "global_norm",
                                            "sample",
                                            "cross_entropy",
                                            "token_log_probs",
                                            "load_balancing_loss",
                                            "dropout",
                                            "paged_attention",
                                            "latent_decode",
                                            "causal_conv1d_update",
                                            "recurrent_gated_delta_rule",
                                            "expert_linear",
                                            "rounded_experts",
                                            "fake_quantize"};
      for (const ops::ModuleKernel& each : model->decoder.ops().bindings()) {
        const bool not_here = elsewhere.contains(std::string(each.op)) || each.op.starts_with("lora");
        EXPECT_TRUE(not_here || heard.contains(std::string(each.op)))
            << type << ": " << each.op << " of " << each.module;
      }
    }
}

TEST(PassComparison, HearsTheOpsOfAdapters) {
  for (const ops::OpsConfig& kernels : {ops::OpsConfig(), ops::all_eager()}) {
    const auto model = tiny_model({.type = "qwen3_moe", .ops = kernels});
    LoraConfig config{.rank = 2, .alpha = 4, .targets = {.names = {"q_proj"}}};
    config.parameters = {"experts.down_proj"};
    const auto adapter = models::new_adapter(*model, config, 1, "");
    layers::Decoder::Options options;
    options.adapters = {{adapter.get(), 5}};
    OpTrace trace(model->decoder);
    Tape tape;
    {
      const ops::OpListener::Scope listens(trace);
      model->decoder.forward(tape, layers::make_input(std::vector<int32_t>{1, 2, 3, 4, 5}, std::vector{5}),
                             options);
    }
    std::set<std::string> heard;
    for (const OpResult& each : trace.take(5))
      if (each.op.starts_with("lora") && each.compares()) heard.insert(each.op + ", " + each.place);
    EXPECT_EQ(heard, (std::set<std::string>{"lora_linear, layers.0.attention.qkv",
                                            "lora_linear, layers.1.attention.qkv",
                                            "lora_moe_experts, layers.0.mlp.experts.gate_up",
                                            "lora_moe_experts, layers.1.mlp.experts.gate_up"}));
  }
}

}  // namespace
}  // namespace temper::rollout
