// Conversations in float32 on a GPU compared with those on the CPU; skipped where there is none.
#include <cmath>

#include "base/error.h"
#include "rollout/engine_test_support.h"
#include "tests/support/gpu.h"

namespace temper::rollout {
namespace {

class GpuConversation : public testing::Test {
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
    here_ = std::make_unique<Engine>(cpu_->decoder, small_pages());
    there_ = std::make_unique<Engine>(gpu_->decoder, small_pages());
  }
  static Completion answer(Engine& engine, const Request& request) {
    engine.add(request);
    return answers(engine).begin()->second;
  }

  // The same answer from both, for the same amount of work. Passes that are started ahead may leave one token
  // more behind.
  Ids both(const Request& request) const {
    const Completion expected = answer(*here_, request), found = answer(*there_, request);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.finish, expected.finish);
    EXPECT_GE(found.cached_tokens, expected.cached_tokens);
    EXPECT_LE(found.cached_tokens, expected.cached_tokens + 1);
    return found.ids;
  }

  std::unique_ptr<models::Model> cpu_, gpu_;
  std::unique_ptr<Engine> here_, there_;
};

TEST_F(GpuConversation, GreedyIsThatOfTheCpu) {
  EXPECT_TRUE(gpu_->decoder.batches_on_device());
  EXPECT_EQ(both(request_of({3, 14, 15, 9, 26}, 0, 0, 30)).size(), 30u);
  both(request_of({7}, 0, 0, 1));
  both(request_of({7}, 0, 0, 2));
}

// The cache grows meanwhile, and with it passes are captured again.
TEST_F(GpuConversation, ContinuesFromTheCache) {
  for (const char* type : {"qwen3", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(type);
    compare_models(type);
    EXPECT_TRUE(gpu_->decoder.batches_on_device());
    Ids prompt{3, 14, 15};
    for (int turn = 0; turn < 4; ++turn) {
      const Ids said = both(request_of(prompt, 0, 0, 8));
      prompt.insert(prompt.end(), said.begin(), said.end());
      prompt.insert(prompt.end(), {40, 41});
    }
    both(request_of({3, 14, 7, 7}, 0, 0, 4));
    both(request_of({3, 14}, 0, 0, 4));
  }
}

TEST_F(GpuConversation, StopsAtStopTokensAndTheContext) {
  Request request = request_of({3, 14, 15, 9, 26}, 0, 0, 8);
  const Ids free = both(request);
  for (const size_t last : {0, 1, 3, 7}) {
    request.stop_ids = {free[last]};
    both(request);
  }
  request.stop_ids.clear();
  both(request);  // what was computed in vain is forgotten
  Ids full(60);
  for (size_t i = 0; i < full.size(); ++i) full[i] = static_cast<int32_t>(i * 7 % 48);
  EXPECT_EQ(both(request_of(full, 0, 0, 20)).size(), 4u);
}

TEST_F(GpuConversation, ACancelledAnswerIsContinued) {
  Request request = request_of({3, 14, 15, 9, 26}, 0, 0, 12);
  const Ids free = both(request);
  const int64_t id = there_->add(request);
  int64_t tokens = 0;
  while (there_->step()) {
    tokens += std::ssize(there_->new_tokens());
    if (tokens == 5) there_->cancel(id);
  }
  const Completion cut = std::move(there_->take_finished().front());
  EXPECT_EQ(cut.finish, Finish::kCancelled);
  EXPECT_EQ(cut.ids, Ids(free.begin(), free.begin() + 5));
  request.prompt.insert(request.prompt.end(), cut.ids.begin(), cut.ids.end());
  request.prompt.push_back(40);
  EXPECT_EQ(answer(*there_, request).ids, answer(*here_, request).ids);
}

TEST_F(GpuConversation, SamplingIsThatOfTheCpu) {
  for (const uint64_t seed : {1, 2, 3})
    for (const double penalty : {1.0, 1.2}) {
      Request request = request_of({1, 2, 3}, seed, 1.5, 30);
      request.sampling.repetition_penalty = penalty;
      both(request);
      request.sampling.min_p = 0.3;
      both(request);
      request.sampling.min_p = 0;
      request.sampling.top_k = 10;
      request.sampling.top_p = 0.9;
      both(request);
    }
}

// What the device computed in vain meanwhile does no harm, and right weights give right answers again.
TEST_F(GpuConversation, LogitsWithoutADistributionFail) {
  Request request = request_of({3, 14, 15, 9, 26}, 0, 0, 12);
  both(request);
  const Tensor right = gpu_->decoder.parameters().value("norm.weight").narrow(0, 3, 1).on({}).clone();
  gpu_->decoder.parameters().set_rows("norm.weight", 3, Tensor::from(std::vector<float>{std::nanf("")}));
  for (const double temperature : {0.0, 1.0}) {
    request.sampling.temperature = temperature;
    EXPECT_EQ(answer(*there_, request).finish, Finish::kFailed);
  }
  request.sampling.temperature = 0;
  gpu_->decoder.parameters().set_rows("norm.weight", 3, right);
  const Completion again = answer(*there_, request);
  EXPECT_EQ(again.cached_tokens, 0);  // by other weights
  EXPECT_EQ(again.ids, answer(*here_, request).ids);
}

// Another engine takes and frees memory of the same pool while this one's graphs are in use.
TEST_F(GpuConversation, WhatRunsBetweenStepsLeavesTheGraphAlone) {
  const Request request = request_of({3, 14, 15, 9, 26}, 0, 0, 12);
  const Ids expected = answer(*here_, request).ids;
  there_->add(request);
  int32_t tokens = 0;
  while (there_->step()) {
    Engine other(gpu_->decoder, small_pages());
    answer(other, request_of({++tokens, 5, 6}, 0, 0, 5));
  }
  EXPECT_EQ(there_->take_finished().front().ids, expected);
}

TEST_F(GpuConversation, CompositionsRunWithoutAGraph) {
  const auto eager = tiny_model({.facts = detect_hardware("cuda")});
  for (size_t i = 0; i < cpu_->decoder.parameters().size(); ++i)
    eager->decoder.parameters()[i].value.copy_from(gpu_->decoder.parameters()[i].value);
  EXPECT_FALSE(eager->decoder.batches_on_device());
  Engine slow(eager->decoder, small_pages());
  const Request request = request_of({3, 14, 15}, 0, 0, 10);
  EXPECT_EQ(answer(slow, request).ids, answer(*here_, request).ids);
}

}  // namespace
}  // namespace temper::rollout
