// The engine on a GPU, whose passes of tokens are captured; skipped where there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/token_log_probs/token_log_probs.h"
#include "rollout/engine_test_support.h"
#include "tests/support/gpu.h"

namespace temper::rollout {
namespace {

// Sequences come and go, so that passes have other rows and pages each time.
std::vector<Request> ragged_requests(int64_t count, double temperature) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i)
    requests.push_back(request_of(prompt_of(1 + i * 7 % 30, static_cast<int32_t>(i % 9)),
                                  static_cast<uint64_t>(i), temperature, 4 + i * 5 % 29));
  return requests;
}

class GpuEngine : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    model_ = tiny_model({.type = GetParam(),
                         .dtype = DType::kBF16,
                         .ops = {},
                         .deviation = 0.1,
                         .facts = detect_hardware("cuda"),
                         .sizes = {{"linear_value_head_dim", 8}}});  // as the kernel needs it
  }
  const layers::Decoder& model() const { return model_->decoder; }

  // Of an answer, by one pass as training does it.
  std::vector<float> log_probs_of(const Ids& prompt, const Ids& answer) const {
    Ids all = prompt;
    all.insert(all.end(), answer.begin(), answer.end() - 1);
    Tape tape(false);
    const Var hidden =
        model().forward(tape, layers::make_input(all, std::vector{static_cast<int32_t>(all.size())}));
    const auto first = static_cast<int64_t>(prompt.size()) - 1;
    const Var logits =
        model().logits(tape, primitives::narrow(tape, hidden, 0, first, static_cast<int64_t>(answer.size())));
    const Tensor found = ops::token_log_probs(tape, model().ops().at<ops::TokenLogProbs>("head"), logits,
                                              Tensor::from(answer).on(model().device()))
                             .log_probs.value.on({});
    const auto values = found.values<float>();
    return {values.begin(), values.end()};
  }

  std::unique_ptr<models::Model> model_;
};

// Captured passes find their memory at the same addresses, whatever others wrote there meanwhile.
TEST_P(GpuEngine, SleepsBetweenRequestsWithItsGraphs) {
  const std::vector<Request> requests = ragged_requests(20, 1);
  Engine engine(model(), {.max_running = 24});
  const auto all_answers = [&] {
    for (const Request& request : requests) engine.add(request);
    std::vector<std::pair<Ids, std::vector<float>>> found;
    for (auto& [id, each] : answers(engine)) found.emplace_back(each.ids, each.columns.rollout_log_probs);
    return found;
  };
  const Device device = model().device();
  const auto region = [&](MemoryTag tag) { return pool(device).usage()[static_cast<size_t>(tag)]; };
  const auto expected = all_answers();
  const Tensor poison = Tensor::empty({int64_t{1} << 26}, DType::kU8);
  std::memset(poison.raw(), 0xff, static_cast<size_t>(poison.bytes()));
  for (int turn = 0; turn < 3; ++turn) {
    const int64_t graphs = region(MemoryTag::kGraphs).live;
    EXPECT_EQ(graphs > 0, model().batches_on_device());
    engine.sleep();
    EXPECT_EQ(region(MemoryTag::kGraphs).held, 0);
    EXPECT_EQ(region(MemoryTag::kKvCache).held, 0);
    {
      std::vector<Tensor> others;  // more than what sleeps
      for (int i = 0; i < 8; ++i) others.push_back(poison.on(device));
    }
    EXPECT_THROW(engine.add(requests[0]), Error);
    engine.wake();
    EXPECT_EQ(all_answers(), expected) << turn;
    EXPECT_EQ(region(MemoryTag::kGraphs).live, graphs);  // nothing was captured again
  }
}

// Experts that round to another choice move a token far, and latent attention computes tokens of answers by
// another formula: of these the mean is compared.
TEST_P(GpuEngine, LogProbabilitiesAreThoseOfTraining) {
  const std::string type = GetParam();
  EXPECT_EQ(model().batches_on_device(), type != "gpt_oss");  // whose experts have no kernel here
  for (const double temperature : {0.0, 1.0}) {
    const std::vector<Request> requests = ragged_requests(40, temperature);
    const std::vector<Completion> answers = answers_of(model(), requests, {.max_running = 24});
    ASSERT_EQ(answers.size(), requests.size());
    double largest = 0, sum = 0, tokens = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(std::ssize(answers[i].ids), requests[i].max_new_tokens) << answers[i].error;
      const std::vector<float> expected = log_probs_of(requests[i].prompt, answers[i].ids);
      for (size_t t = 0; t < expected.size(); ++t, ++tokens) {
        const double difference = std::abs(answers[i].columns.rollout_log_probs[t] - expected[t]);
        largest = std::max(largest, difference);
        sum += difference;
      }
    }
    EXPECT_LT(sum / tokens, 0.01) << "temperature " << temperature;
    if (type != "qwen3_moe" && type != "gpt_oss" && type != "qwen3_next" && type != "deepseek_v3") {
      EXPECT_LT(largest, 0.06) << "temperature " << temperature;
    }
  }
}

// The next pass is asked for before a stop token is read: what it computes for such a request is forgotten.
TEST_P(GpuEngine, StopTokensEndRequests) {
  std::vector<Request> requests = ragged_requests(40, 1);
  const std::vector<Completion> free = answers_of(model(), requests, {.max_running = 16});
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].stop_ids = {free[i].ids[free[i].ids.size() / 2]};
    requests[i].max_new_tokens = 33;
  }
  int64_t stopped = 0;
  const std::vector<Completion> answers = answers_of(model(), requests, {.max_running = 16});
  for (size_t i = 0; i < requests.size(); ++i) {
    const Completion& answer = answers[i];
    const int64_t stops = std::count(answer.ids.begin(), answer.ids.end(), requests[i].stop_ids[0]);
    EXPECT_EQ(stops, answer.finish == Finish::kStopToken ? 1 : 0);
    if (answer.finish == Finish::kStopToken)
      EXPECT_EQ(answer.ids.back(), requests[i].stop_ids[0]);
    else
      EXPECT_EQ(answer.ids.size(), 33u);
    stopped += stops;
    const std::vector<float> expected = log_probs_of(requests[i].prompt, answer.ids);
    double sum = 0;
    for (size_t t = 0; t < expected.size(); ++t)
      sum += std::abs(answer.columns.rollout_log_probs[t] - expected[t]);
    EXPECT_LT(sum / static_cast<double>(expected.size()), 0.1) << "request " << i;
  }
  EXPECT_GT(stopped, 20);
}

// An answer that is forced is computed without graphs.
TEST_P(GpuEngine, CapturedPassesComputeWhatOthersDo) {
  std::vector<Request> requests = ragged_requests(20, 0.8);
  const std::vector<Completion> captured = answers_of(model(), requests);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].forced = captured[i].ids;
  const std::vector<Completion> forced = answers_of(model(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(forced[i].ids, captured[i].ids);
    for (size_t t = 0; t < captured[i].ids.size(); ++t)
      EXPECT_NEAR(forced[i].columns.rollout_log_probs[t], captured[i].columns.rollout_log_probs[t], 0.1)
          << "request " << i << ", token " << t;
  }
}

// An engine that is observed captures nothing.
TEST_P(GpuEngine, CapturedPassesKnowTheTokensOfPenalties) {
  struct Unmoved : EngineObserver {
    void passed(std::span<const Tokens>, const std::vector<Tensor>&, const Tensor&) override {}
    void predicted(std::span<const Tokens>, const Tensor&) override {}
  } observer;
  Engine engine(model(), {});
  for (Request& request : ragged_requests(6, 0.8)) {
    request.sampling.repetition_penalty = 1.5;
    engine.add(request);
    EXPECT_EQ(answers(engine).begin()->second.ids,
              answers_of(model(), {request}, {.observer = &observer})[0].ids);
  }
}

TEST_P(GpuEngine, TheSameRequestsHaveTheSameAnswers) {
  const std::vector<Request> requests = ragged_requests(30, 1);
  const std::vector<Completion> once = answers_of(model(), requests), again = answers_of(model(), requests);
  // A small cache: requests are preempted and computed again, which ends no request early.
  const std::vector<Completion> small = answers_of(model(), requests, {.cache_tokens = 160});
  int64_t preemptions = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(once[i].ids, again[i].ids);
    EXPECT_EQ(once[i].columns.rollout_log_probs, again[i].columns.rollout_log_probs);
    EXPECT_EQ(small[i].ids.size(), once[i].ids.size());
    preemptions += small[i].preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

// Weights change in place: graphs read what is there.
TEST_P(GpuEngine, FollowsWeights) {
  const std::vector<Request> requests = ragged_requests(6, 0);
  Engine engine(model(), {});
  const auto ask = [&] {
    for (const Request& request : requests) engine.add(request);
    std::map<int64_t, Completion> all;
    while (engine.step())
      for (Completion& each : engine.take_finished()) all[each.id] = std::move(each);
    std::vector<Ids> ids;
    for (auto& [id, each] : all) ids.push_back(each.ids);
    return ids;
  };
  const std::vector<Ids> before = ask();
  const Tensor weight = model_->decoder.parameters().at("embedding.weight").value;
  const Tensor old = weight.clone();
  weight.fill_zero();
  model_->decoder.parameters().changed();
  EXPECT_NE(ask(), before);
  weight.copy_from(old);
  model_->decoder.parameters().changed();
  EXPECT_EQ(ask(), before);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuEngine,
                         testing::Values("qwen3", "llama", "gemma3_text", "qwen3_moe", "gpt_oss",
                                         "qwen3_next", "qwen3_5_text", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace temper::rollout
