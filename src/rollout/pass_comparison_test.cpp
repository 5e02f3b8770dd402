#include "rollout/pass_comparison.h"

#include <gtest/gtest.h>

#include "ops/linear/linear.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

const ops::FieldValues kInvariantKernels{{"linear", "onednn_invariant"},
                                         {"paged_attention", "onednn_invariant"}};

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
  return invariant ? std::move(model) : nullptr;
}

TEST(PassComparison, IsExactlyZeroWithBatchInvariantKernels) {
  for (const char* type : {"qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "qwen3_next", "qwen3_5_text"}) {
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
        EXPECT_EQ(found.tokens, kTokens * std::max<int64_t>(3, batch) * (warm ? 2 : 1));
        EXPECT_GT(comparison.seconds_per_pass(batch), 0);
      }
  }
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
        EXPECT_TRUE(found.none()) << type << " " << batch << (warm ? " warm: " : ": ") << found.first_module;
        EXPECT_EQ(found.different_tokens, 0);
      }
  }
}

struct Other {
  const char *modules, *field, *provider;
  const char* first;
  int64_t layer;
};

// Another kernel for one op of one layer: the module it is in is named.
TEST(PassComparison, NamesTheFirstModuleThatDiffers) {
  const Other cases[] = {{"layers.1.*", "paged_attention", "eager", "layer 1, mixer", 1},
                         {"layers.0.*", "paged_attention", "eager", "layer 0, mixer", 0},
                         {"layers.1.mlp.*", "linear", "onednn", "layer 1, channel", 1}};
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
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(found.log_probs[i], found.log_probs[4]);
  request.forced = {48};
  expect_has(error_of([&] { engine.add(request); }), "token id 48 is outside the vocabulary [0, 48)");
}

TEST(PassComparison, ModelsThatDecodeByAnotherFormulaDiffer) {
  const auto model =
      tiny_model({.type = "qwen3_next", .sizes = {{"max_position_embeddings", Json(int64_t{256})}}});
  const PassComparison comparison(model->decoder, likeliest_answers(model->decoder, some_prompts(), 12));
  const PassDifference found = comparison.compare(2, false);
  EXPECT_EQ(found.first_module, "layer 0, mixer");  // gated delta
  EXPECT_LT(found.largest, 1e-3);
}

}  // namespace
}  // namespace temper::rollout
