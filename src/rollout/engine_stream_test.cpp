// Tokens as they come, and requests that are ended from outside.
#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

TEST(EngineStream, ReportsTheTokensOfEachStep) {
  const auto model = tiny_model();
  const tokenizers::Tokenizer tokenizer = letters();
  std::vector<Request> requests = mixed_requests(7, 1.5);
  for (Request& request : requests) request.stop_strings = {"AB", "XYZZY"};
  requests[2].stop_ids = {answers_of(model->decoder, {request_of(requests[2].prompt, 2, 1.5)})[0].ids[1]};
  Engine engine(model->decoder, {.max_running = 3}, &tokenizer);
  for (const Request& request : requests) engine.add(request);
  std::map<int64_t, Ids> tokens;
  std::map<int64_t, std::string> texts;
  std::map<int64_t, Completion> finished;
  while (engine.step()) {
    for (const Engine::NewToken& each : engine.new_tokens()) {
      tokens[each.id].push_back(each.token);
      texts[each.id] += each.text;
    }
    for (Completion& each : engine.take_finished()) finished[each.id] = std::move(each);
  }
  EXPECT_TRUE(engine.new_tokens().empty());
  ASSERT_EQ(finished.size(), requests.size());
  for (const auto& [id, answer] : finished) {
    EXPECT_EQ(tokens[id], answer.ids);
    EXPECT_EQ(texts[id], answer.text);
  }
  EXPECT_EQ(finished[2].finish, Finish::kStopToken);
}

TEST(EngineStream, ACancelledRequestKeepsWhatItHas) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    const auto model = tiny_model({.type = type});
    const std::vector<Request> requests = mixed_requests(6, 1.5);
    const std::vector<Completion> expected = answers_of(model->decoder, requests);
    Engine engine(model->decoder, {.max_running = 3});
    for (const Request& request : requests) engine.add(request);
    std::map<int64_t, int64_t> counts;
    std::map<int64_t, Completion> finished;
    EXPECT_TRUE(engine.cancel(4));  // it waits
    while (engine.step()) {
      for (const Engine::NewToken& each : engine.new_tokens())
        if (++counts[each.id] == 3 && each.id == 1) {
          EXPECT_TRUE(engine.cancel(1));
        }
      for (Completion& each : engine.take_finished()) finished[each.id] = std::move(each);
    }
    ASSERT_EQ(finished.size(), requests.size());
    for (auto& [id, answer] : finished) {
      const Ids& all = expected[static_cast<size_t>(id)].ids;
      const std::ptrdiff_t count = id == 4 ? 0 : id == 1 ? 3 : std::ssize(all);
      EXPECT_EQ(answer.ids, Ids(all.begin(), all.begin() + count)) << type << ", request " << id;
      EXPECT_EQ(answer.finish == Finish::kCancelled, id == 1 || id == 4);
      EXPECT_FALSE(engine.cancel(id));
    }
    EXPECT_EQ(engine.running() + engine.waiting(), 0);
  }
}

TEST(EngineStream, LogProbabilitiesThatAreNotWantedAreLeftOut) {
  const auto model = tiny_model();
  std::vector<Request> requests = mixed_requests(6, 1.5);
  const std::vector<Completion> expected = answers_of(model->decoder, requests);
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].log_prob_temperature = 0;
  const std::vector<Completion> found = answers_of(model->decoder, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids);
    EXPECT_EQ(found[i].columns.rollout_log_probs,
              i % 2 == 0 ? std::vector<float>(found[i].ids.size()) : expected[i].columns.rollout_log_probs);
  }
}

// Throws in one pass, as one that finds no memory does.
class FailingPass : public EngineObserver {
 public:
  int left = 0;  // passes until then; below 0: never

 private:
  void passed(std::span<const Tokens> /*parts*/, const std::vector<Tensor>& /*stream*/,
              const Tensor& /*hidden*/) override {
    if (left-- == 0) fail("no memory is left");
  }
  void predicted(std::span<const Tokens> /*rows*/, const Tensor& /*logits*/) override {}
};

TEST(EngineStream, AfterAFailedPassTheNextRequestFindsNothingOfIt) {
  for (const char* type : {"qwen3", "qwen3_next"})
    for (const int passes : {0, 2}) {
      const auto model = tiny_model({.type = type});
      FailingPass failing;
      failing.left = passes;
      EngineOptions options = options_of_conversation();
      options.observer = &failing;
      Engine engine(model->decoder, options);
      // The next prompt begins as this one, whose first page is full.
      Ids longer(40, 7);
      longer[0] = 3;
      engine.add(request_of(Ids(longer.begin(), longer.begin() + 20), 0, 0, 8));
      EXPECT_THROW(while (engine.step()){}, Error);
      engine.give_up();
      EXPECT_EQ(engine.running() + engine.waiting(), 0);
      // Longer than the cache: it grows only where no other request is there.
      const Request next = request_of(longer, 0, 0, 5);
      const int64_t id = engine.add(next);
      const std::map<int64_t, Completion> found = answers(engine);
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found.at(id).ids, answers_of(model->decoder, {next})[0].ids);
      EXPECT_EQ(found.at(id).cached_tokens, 0);
    }
}

}  // namespace
}  // namespace temper::rollout
