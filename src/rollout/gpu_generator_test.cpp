// The loop on a GPU compared with that on the CPU; skipped where there is none.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "rollout/generator.h"
#include "tests/support/gpu.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

using Ids = std::vector<int32_t>;

class GpuGenerator : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    compare_models("qwen3");
  }

  void compare_models(const char* type) {
    const bool experts = std::string_view(type) == "deepseek_v3";
    cpu_ = tiny_model({.type = type, .experts = experts});
    gpu_ = tiny_model({.type = type, .ops = {}, .facts = detect_hardware("cuda"), .experts = experts});
    for (size_t i = 0; i < cpu_->decoder.parameters().size(); ++i)
      gpu_->decoder.parameters()[i].value.copy_from(
          cpu_->decoder.parameters()[i].value.on(gpu_->decoder.device()));
    here_ = std::make_unique<Generator>(cpu_->decoder);
    there_ = std::make_unique<Generator>(gpu_->decoder);
  }

  // The same answer from both, for the same amount of work.
  Ids both(const Ids& prompt, const GenerateOptions& options) const {
    const Generation expected = here_->generate(prompt, options), found = there_->generate(prompt, options);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.reason, expected.reason);
    EXPECT_EQ(found.prompt_tokens, expected.prompt_tokens);
    return found.ids;
  }

  std::unique_ptr<models::Model> cpu_, gpu_;
  std::unique_ptr<Generator> here_, there_;
};

TEST_F(GpuGenerator, GreedyIsThatOfTheCpu) {
  EXPECT_TRUE(gpu_->decoder.decodes_on_device());
  EXPECT_EQ(both({3, 14, 15, 9, 26}, {.max_new_tokens = 30}).size(), 30u);
  both({7}, {.max_new_tokens = 1});
  both({7}, {.max_new_tokens = 2});
}

TEST_F(GpuGenerator, MixturesAndLatentAttentionDecodeOnTheDevice) {
  for (const char* type : {"qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(type);
    compare_models(type);
    EXPECT_TRUE(gpu_->decoder.decodes_on_device());
    const Ids answer = both({3, 14, 15, 9, 26}, {.max_new_tokens = 30});
    Ids prompt{3, 14, 15, 9, 26};
    prompt.insert(prompt.end(), answer.begin(), answer.begin() + 9);
    both(prompt, {.max_new_tokens = 20});
  }
}

TEST_F(GpuGenerator, AConversationContinuesFromTheCache) {
  Ids prompt{3, 14, 15};
  for (int turn = 0; turn < 4; ++turn) {  // the cache grows meanwhile, and with it the graph is made again
    const Ids answer = both(prompt, {.max_new_tokens = 8});
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    prompt.insert(prompt.end(), {40, 41});
  }
  both({3, 14, 7, 7}, {.max_new_tokens = 4});
  both({3, 14}, {.max_new_tokens = 4});
}

TEST_F(GpuGenerator, StopsAtStopTokensContextAndCallback) {
  const Ids prompt{3, 14, 15, 9, 26}, free = both(prompt, {.max_new_tokens = 8});
  for (const size_t last : {0, 1, 3, 7}) both(prompt, {.max_new_tokens = 8, .stop_ids = {free[last]}});
  both(prompt, {.max_new_tokens = 8});  // what was computed in vain is forgotten
  Ids full(60);
  for (size_t i = 0; i < full.size(); ++i) full[i] = static_cast<int32_t>(i * 7 % 48);
  EXPECT_EQ(both(full, {.max_new_tokens = 20}).size(), 4u);
  Ids seen;
  const Generation called = there_->generate(prompt, {.max_new_tokens = 8}, [&](int32_t id) {
    seen.push_back(id);
    return seen.size() < 3;
  });
  EXPECT_EQ(called.reason, StopReason::kCallback);
  EXPECT_EQ(seen, Ids(free.begin(), free.begin() + 3));
}

TEST_F(GpuGenerator, SamplingIsThatOfTheCpu) {
  for (const uint64_t seed : {1, 2, 3})
    for (const double penalty : {1.0, 1.2}) {
      const ops::SamplingOptions plain{.temperature = 1.5, .repetition_penalty = penalty, .seed = seed};
      ops::SamplingOptions cut = plain;
      cut.top_k = 10;
      cut.top_p = 0.9;
      both({1, 2, 3}, {.sampling = plain, .max_new_tokens = 30});
      both({1, 2, 3}, {.sampling = cut, .max_new_tokens = 30});
      cut = plain;
      cut.min_p = 0.3;
      both({1, 2, 3}, {.sampling = cut, .max_new_tokens = 30});
    }
}

// What the device computed in vain meanwhile does no harm, and right weights give right answers again.
TEST_F(GpuGenerator, LogitsWithoutADistributionAreAnError) {
  const Ids prompt{3, 14, 15, 9, 26};
  both(prompt, {.max_new_tokens = 12});
  const Tensor right = gpu_->decoder.parameters().value("norm.weight").narrow(0, 3, 1).on({}).clone();
  gpu_->decoder.parameters().set_rows("norm.weight", 3, Tensor::from(std::vector<float>{std::nanf("")}));
  for (const double temperature : {0.0, 1.0})
    EXPECT_THROW(there_->generate(prompt, {.sampling = {.temperature = temperature}, .max_new_tokens = 12}),
                 Error);
  gpu_->decoder.parameters().set_rows("norm.weight", 3, right);
  const Generation again = there_->generate(prompt, {.max_new_tokens = 12});
  EXPECT_EQ(again.prompt_tokens, 5);  // by other weights
  EXPECT_EQ(again.ids, here_->generate(prompt, {.max_new_tokens = 12}).ids);
}

TEST_F(GpuGenerator, WhatRunsBetweenStepsLeavesTheGraphAlone) {
  // Another generator takes and frees memory of the same pool while this one's graph is in use.
  const Ids prompt{3, 14, 15, 9, 26}, expected = here_->generate(prompt, {.max_new_tokens = 12}).ids;
  Ids found;
  there_->generate(prompt, {.max_new_tokens = 12}, [&](int32_t id) {
    found.push_back(id);
    Generator other(gpu_->decoder);
    other.generate(Ids{static_cast<int32_t>(found.size()), 5, 6}, {.max_new_tokens = 5});
    return true;
  });
  EXPECT_EQ(found, expected);
}

TEST_F(GpuGenerator, CompositionsRunWithoutAGraph) {
  const auto eager = tiny_model({.facts = detect_hardware("cuda")});
  for (size_t i = 0; i < cpu_->decoder.parameters().size(); ++i)
    eager->decoder.parameters()[i].value.copy_from(gpu_->decoder.parameters()[i].value);
  EXPECT_FALSE(eager->decoder.decodes_on_device());
  const Ids prompt{3, 14, 15};
  Generator slow(eager->decoder);
  EXPECT_EQ(slow.generate(prompt, {.max_new_tokens = 10}).ids,
            here_->generate(prompt, {.max_new_tokens = 10}).ids);
}

}  // namespace
}  // namespace temper::rollout
