// The hybrids of attention and the gated delta rule: what they read, and that pieces, steps, prefixes and
// packed rows give what whole sequences give alone.
#include "models/delta_hybrid.h"

#include "base/files.h"
#include "base/random.h"
#include "models/adapter.h"
#include "models/config_test_support.h"
#include "primitives/primitives.h"
#include "tests/support/paged_text.h"
#include "tests/support/relative_error.h"

namespace temper::models {
namespace {

constexpr const char* kTypes[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
const std::vector<int32_t> kIds{3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46, 26, 4, 33, 8, 32};
constexpr int32_t kTokens = 20;

std::unique_ptr<Model> build(const char* type, std::optional<primitives::FrozenFormat> base_dtype = {}) {
  BuildOptions options;
  options.dtype = DType::kF32;
  options.base_dtype = base_dtype;
  auto model = build_model(with(type, "{}"), "tiny", options);
  model->decoder.parameters().initialize(7, 0.1);
  return model;
}

Tensor whole(const Model& model) {
  Tape tape(false);
  return model.decoder
      .logits(tape, model.decoder.forward(tape, layers::make_input(kIds, std::vector{kTokens})))
      .value;
}

TEST(DeltaHybrid, AnySplitInPiecesGivesTheSame) {
  for (const char* type : kTypes) {
    const auto model = build(type);
    const Tensor expected = whole(*model);
    for (int32_t first = 1; first < kTokens; ++first) {
      SCOPED_TRACE(fmt::format("{}, {} tokens first", type, first));
      PagedText text(model->decoder);
      for (const auto& [begin, count] : {std::pair{0, first}, {first, kTokens - first}}) {
        Tape tape(false);
        const Var hidden = text.prompt(tape, std::span(kIds).subspan(begin, count));
        EXPECT_LE(relative_error(model->decoder.logits(tape, hidden).value, expected.narrow(0, begin, count)),
                  2e-6);
      }
    }
  }
}

void expect_steps_as_whole(const Model& model, PagedText& text) {
  constexpr int32_t kPrompt = 7;
  const Tensor expected = whole(model);
  Tape tape(false);
  text.prompt(tape, std::span(kIds).first(kPrompt));
  for (int32_t at = kPrompt; at < kTokens; ++at) {
    const Var hidden = text.decode(tape, kIds[static_cast<size_t>(at)]);
    EXPECT_LE(relative_error(model.decoder.logits(tape, hidden).value, expected.narrow(0, at, 1)), 2e-5)
        << at;
  }
}

TEST(DeltaHybrid, DecodingIsAsOnePassOverAllTokens) {
  for (const char* type : kTypes)
    for (const auto base :
         {std::optional<primitives::FrozenFormat>(), std::optional(primitives::FrozenFormat::kFloat8)}) {
      SCOPED_TRACE(type);
      const auto model = build(type, base);
      PagedText text(model->decoder);
      expect_steps_as_whole(*model, text);
      text.begin();  // of what was there nothing is left
      expect_steps_as_whole(*model, text);
    }
}

struct Found {
  Tensor logits;
  std::vector<Tensor> grads;
};

// Logits and gradients of some documents; `seed` [tokens, vocab] is the logits' gradient.
Found run(Model& model, std::span<const int32_t> ids, const std::vector<int32_t>& lengths,
          const std::vector<int32_t>& continued, const Tensor& seed) {
  layers::ParameterStore& parameters = model.decoder.parameters();
  parameters.enable_gradients(DType::kF32);
  Tape tape;
  const Var hidden = model.decoder.forward(tape, layers::make_input(ids, lengths, continued));
  const Var logits = model.decoder.logits(tape, hidden);
  tape.backward(logits, seed);
  Found found{logits.value, {}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const bool filled = parameter.grad != nullptr && parameter.grad->filled();
    found.grads.push_back(filled ? parameter.grad->grad().clone()
                                 : Tensor::zeros(parameter.value.shape(), DType::kF32));
  }
  return found;
}

Tensor seed_of(int64_t tokens) {
  Tensor seed = Tensor::zeros({tokens, 48}, DType::kF32);
  for (int64_t i = 0; i < seed.numel(); ++i)
    seed.data<float>()[i] = static_cast<float>((i * 37 + i / 48 * 11) % 101) / 50.f - 1;
  return seed;
}

void expect_same_gradients(const Model& model, const std::vector<Tensor>& found,
                           const std::vector<Tensor>& expected, double tolerance) {
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(relative_error(found[i], expected[i], 1e-3), tolerance)
        << model.decoder.parameters().spec(i).name;
}

// The ops give the same bits (their own tests); products of other sizes sum in another order.
TEST(DeltaHybrid, PackedDocumentsAreWhatTheyAreAlone) {
  const std::vector<int32_t> lengths{6, 1, 9, 4};
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const auto model = build(type);
    const Tensor seed = seed_of(kTokens);
    const Found packed = run(*model, kIds, lengths, {}, seed);
    std::vector<Tensor> sums;
    int64_t first = 0;
    for (const int32_t length : lengths) {
      const Found alone = run(*model, std::span(kIds).subspan(static_cast<size_t>(first), length), {length},
                              {}, seed.narrow(0, first, length).contiguous());
      EXPECT_LE(relative_error(packed.logits.narrow(0, first, length), alone.logits), 1e-6);
      if (sums.empty())
        sums = alone.grads;
      else
        for (size_t i = 0; i < sums.size(); ++i) add_in_place(sums[i], alone.grads[i]);
      first += length;
    }
    expect_same_gradients(*model, packed.grads, sums, 1e-5);
  }
}

// Two answers to one prompt, which is computed once: values and gradients of the prompt and each answer as of
// two sequences.
TEST(DeltaHybrid, DocumentsThatContinueAPrefix) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const auto model = build(type);
    const Tensor seed = seed_of(kTokens);
    const Found shared = run(*model, kIds, {9, 4, 7}, {-1, 0, 0}, seed);
    std::vector<Tensor> sums;
    for (const auto& [first, length] : {std::pair{9, 4}, {13, 7}}) {
      std::vector<int32_t> ids(kIds.begin(), kIds.begin() + 9);
      ids.insert(ids.end(), kIds.begin() + first, kIds.begin() + first + length);
      Tensor own = Tensor::zeros({9 + length, 48}, DType::kF32);
      if (first == 9) own.narrow(0, 0, 9).copy_from(seed.narrow(0, 0, 9));
      own.narrow(0, 9, length).copy_from(seed.narrow(0, first, length));
      const Found alone = run(*model, ids, {9 + length}, {}, own);
      EXPECT_LE(relative_error(shared.logits.narrow(0, first, length), alone.logits.narrow(0, 9, length)),
                2e-6);
      if (sums.empty())
        sums = alone.grads;
      else
        for (size_t i = 0; i < sums.size(); ++i) add_in_place(sums[i], alone.grads[i]);
    }
    expect_same_gradients(*model, shared.grads, sums, 2e-5);
  }
}

// Updates of all projections, and own copies of the convolution and of the gated norm.
std::unique_ptr<layers::Adapter> adapter_of(const Model& model, uint64_t seed) {
  auto adapter = new_adapter(
      model, {.rank = 2, .alpha = 4, .modules_to_save = {"linear_attn.conv1d", "linear_attn.norm"}}, seed,
      "");
  layers::ParameterStore& parameters = adapter->parameters();
  const Random random(seed, RandomPurpose::kData);
  uint64_t at = 0;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (float& value : parameters[i].value.values<float>())
      value += 0.2f * (static_cast<float>(random.below(2001, at++)) / 1000.f - 1);
  return adapter;
}

Tensor adapted(const Model& model, std::span<const int32_t> ids, const std::vector<int32_t>& lengths,
               const std::vector<layers::AdapterRows>& rows) {
  Tape tape(false);
  layers::Decoder::Options options;
  options.adapters = rows;
  return model.decoder.forward(tape, layers::make_input(ids, lengths), options).value;
}

TEST(DeltaHybrid, AdaptersInOnePassAreWhatTheyAreAlone) {
  // Products of other numbers of rows sum in another order, which depends on the processor.
  constexpr double kOtherProducts = 5e-6;
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const auto model = build(type);
    const auto first = adapter_of(*model, 1), second = adapter_of(*model, 2);
    const Tensor all =
        adapted(*model, kIds, {6, 1, 9, 4}, {{first.get(), 7}, {nullptr, 9}, {second.get(), 4}});
    const auto part = [&](int64_t begin, int64_t count) {
      return std::span(kIds).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    };
    const Tensor of_first = adapted(*model, part(0, 7), {6, 1}, {{first.get(), 7}});
    EXPECT_LE(relative_error(all.narrow(0, 0, 7), of_first), kOtherProducts);
    EXPECT_LE(relative_error(all.narrow(0, 7, 9), adapted(*model, part(7, 9), {9}, {})), kOtherProducts);
    EXPECT_LE(relative_error(all.narrow(0, 16, 4), adapted(*model, part(16, 4), {4}, {{second.get(), 4}})),
              kOtherProducts);
    EXPECT_GT(relative_error(of_first, adapted(*model, part(0, 7), {6, 1}, {})), 1e-2);
    const TemporaryDirectory folder;
    save_adapter(*first, folder / "adapter", "");
    const auto loaded = load_adapter(*model, folder / "adapter");
    EXPECT_EQ(relative_error(adapted(*model, part(0, 7), {6, 1}, {{loaded.get(), 7}}), of_first), 0);
  }
}

TEST(DeltaHybrid, DecodingWithAnAdapter) {
  for (const char* type : kTypes) {
    const auto model = build(type);
    const auto adapter = adapter_of(*model, 1);
    const Tensor expected = adapted(*model, kIds, {kTokens}, {{adapter.get(), kTokens}});
    PagedText text(model->decoder, kTokens, adapter.get());
    for (int32_t at = 0; at < kTokens; ++at) {
      Tape tape(false);
      EXPECT_LE(
          relative_error(text.decode(tape, kIds[static_cast<size_t>(at)]).value, expected.narrow(0, at, 1)),
          2e-5)
          << type << ", token " << at;
    }
  }
}

TEST(DeltaHybrid, Layers) {
  const Json next = described("qwen3_next", R"({"num_hidden_layers": 5, "layer_types": null})");
  EXPECT_EQ(next.at("linear_num_value_heads"), Json(Json::Array{4, 4, 4, Json(), 4}));
  EXPECT_EQ(next.at("partial_rotary_factor"), Json(Json::Array{Json(), Json(), Json(), 0.25, Json()}));
  EXPECT_EQ(next.at("projections by key head").as_array()[0], Json(true));
  EXPECT_EQ(next.at("norm_offset"), Json(1.0));
  EXPECT_EQ(next.at("gate of the shared expert"), Json(true));
  EXPECT_EQ(described("qwen3_5_text", R"({"layer_types": null, "full_attention_interval": 2})")
                .at("gate of attention's output"),
            Json(Json::Array{Json(), true}));
  EXPECT_EQ(described("qwen3_next", R"({"mlp_only_layers": [0]})").at("num_experts"),
            Json(Json::Array{Json(), 6}));
  // Sections of positions of images are all the same for text.
  const Json sections = described("qwen3_5_text", R"({"rope_theta": null, "rope_parameters":
      {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_interleaved": true,
       "mrope_section": [1, 1, 0]}})");
  EXPECT_EQ(sections.at("rope_theta"), Json(Json::Array{Json(), 1e7}));
  EXPECT_EQ(sections.at("partial_rotary_factor"), Json(Json::Array{Json(), 0.5}));
  // No layer of the mixture has an intermediate_size.
  EXPECT_EQ(described("qwen3_5_moe_text", R"({"intermediate_size": null})").at("norm_topk_prob"), Json(true));
}

TEST(DeltaHybrid, MistakesAreRefusedByName) {
  for (const char* type : kTypes) {
    expect_refused(type, R"({"linear_num_value_heads": 3})",
                   "linear_num_value_heads is 3, expected a multiple of linear_num_key_heads = 2");
    expect_refused(type, R"({"linear_key_head_dim": 0})", "linear_key_head_dim is 0, expected 1 to");
    expect_refused(type, R"({"linear_conv_kernel_dim": 1})", "linear_conv_kernel_dim is 1, expected 2 to 16");
    expect_refused(type, R"({"layer_types": ["linear_attention"]})",
                   "layer_types must list num_hidden_layers = 2 names");
    expect_refused(type, R"({"layer_types": ["linear_attention", "mamba"]})",
                   "layer_types has 'mamba' for layer 1; use linear_attention or full_attention");
    expect_refused(type, R"({"layer_types": null, "full_attention_interval": 0})",
                   "full_attention_interval is 0, expected 1 or more");
  }
}

}  // namespace
}  // namespace temper::models
