// Which experts each token of a request took.
#include <gtest/gtest.h>

#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

// Of all tokens that were computed, in one pass over them: [tokens][router][top_k].
std::vector<int32_t> experts_of(const layers::Decoder& model, const Request& request,
                                const Completion& answer) {
  Ids all = request.prompt;
  all.insert(all.end(), answer.ids.begin(), answer.ids.end() - 1);
  const auto trace = std::make_shared<layers::RouterTrace>();
  Tape tape(false);
  layers::Decoder::Options options;
  options.routers = trace;
  model.forward(tape, layers::make_input(all, std::vector{static_cast<int32_t>(all.size())}), options);
  std::vector<int32_t> experts;
  for (size_t t = 0; t < all.size(); ++t)
    for (const auto& router : trace->routers)
      for (int64_t k = 0; k < router.ids.dim(1); ++k)
        experts.push_back(router.ids.data<int32_t>()[static_cast<int64_t>(t) * router.ids.dim(1) + k]);
  return experts;
}

std::vector<Request> recording_requests(int64_t count) {
  std::vector<Request> requests = mixed_requests(count);
  for (Request& request : requests) request.record_experts = true;
  return requests;
}

TEST(EngineExperts, AreRecorded) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const std::vector<Request> requests = recording_requests(5);
  const std::vector<Completion> found =
      answers_of(model->decoder, requests, {.cache_tokens = 96, .page_tokens = 4, .chunk_tokens = 64});
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(found[i].experts, experts_of(model->decoder, requests[i], found[i])) << i;
}

// What is computed again is recorded once, whether pages were wanted or weights changed.
TEST(EngineExperts, OfTokensThatAreComputedAgainAreRecordedOnce) {
  const auto model = tiny_model({.type = "qwen3_moe"});
  const std::vector<Request> requests = recording_requests(9);
  Engine engine(model->decoder, {.cache_tokens = 80, .page_tokens = 4, .max_running = 9, .chunk_tokens = 64});
  for (const Request& request : requests) engine.add(request);
  std::map<int64_t, Completion> found = answers(engine);
  int preempted = 0;
  for (const auto& [id, answer] : found) {
    preempted += answer.preemptions > 0 ? 1 : 0;
    EXPECT_EQ(answer.experts, experts_of(model->decoder, requests[static_cast<size_t>(id)], answer)) << id;
  }
  EXPECT_GT(preempted, 1);

  const int64_t late = engine.add(requests[4]);
  for (int i = 0; i < 3; ++i) engine.step();
  model->decoder.parameters().initialize(9, 0.3);
  const Completion across = answers(engine).at(late);
  EXPECT_EQ(across.recomputations, 1);
  EXPECT_EQ(across.experts, experts_of(model->decoder, requests[4], across));
}

}  // namespace
}  // namespace temper::rollout
