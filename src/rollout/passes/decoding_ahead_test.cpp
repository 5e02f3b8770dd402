// On the CPU, where an engine has no such passes: nothing is captured, and the order of the work is the same.
#include "rollout/passes/decoding_ahead.h"

#include <gtest/gtest.h>

#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

// What an engine is made of on a device that captures passes.
struct AheadLoop {
  AheadLoop(const layers::Decoder& decoder, int64_t pages, int64_t page_tokens, int64_t running)
      : model(decoder),
        states(decoder.make_pages({pages + 1, page_tokens, StateSlots::count_for(running) + 1})),
        parts{page_tokens, true, states.has_slots(), decoder.decodes_as_prompts() && !states.has_slots()},
        cache(std::move(states), parts, pages, running),
        schedule(cache, running, 64),
        mixed(decoder, cache, nullptr),
        ahead(decoder, cache, schedule, running) {}

  bool step() {
    if (ahead.is_under_way()) {
      for (const SampledToken& each : ahead.read()) take(each);
      return true;
    }
    const std::vector<ScheduledPart> next = schedule.next(model.parameters().version());
    if (next.empty()) return false;
    if (DecodingAhead::can_compute(next)) {
      ahead.start(next);
      ++started;
      return true;
    }
    for (const SampledToken& each : mixed.run(next)) take(each);
    return true;
  }
  void take(const SampledToken& sampled) {
    Sequence& sequence = *sampled.sequence;
    if (sequence.take(sampled.token)) return;
    ahead.drop(sequence);
    finished[sequence.result().id] = std::move(sequence.result());
    schedule.remove(sequence);
  }
  std::map<int64_t, Completion> answers_to(const std::vector<Request>& requests) {
    for (size_t i = 0; i < requests.size(); ++i)
      schedule.add(sequence_of(requests[i], static_cast<int64_t>(i)));
    while (step()) {
    }
    return finished;
  }

  const layers::Decoder& model;
  layers::PagedStates states;
  PromptParts parts;
  SequenceCache cache;
  Schedule schedule;
  MixedPass mixed;
  DecodingAhead ahead;
  std::map<int64_t, Completion> finished;
  int64_t started = 0;  // passes that did not follow another one
};

TEST(DecodingAhead, AnswersAsPassesThatWaitDo) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    const auto model = tiny_model({.type = type});
    std::vector<Request> requests = mixed_requests(20, 1.5);
    for (size_t i = 0; i < requests.size(); i += 4) requests[i].sampling.repetition_penalty = 3;
    const std::vector<Completion> expected = answers_of(model->decoder, requests);
    for (size_t i = 0; i < requests.size(); ++i)  // an end that is known only when it is read
      if (i % 3 == 0) requests[i].stop_ids = {expected[i].ids[expected[i].ids.size() / 2]};
    for (const int64_t pages : {256, 24}) {
      AheadLoop loop(model->decoder, pages, 4, 6);
      const std::map<int64_t, Completion> found = loop.answers_to(requests);
      ASSERT_EQ(found.size(), requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        const Completion& answer = found.at(static_cast<int64_t>(i));
        const size_t count = answer.ids.size();
        ASSERT_LE(count, expected[i].ids.size());
        EXPECT_EQ(answer.ids, Ids(expected[i].ids.begin(), expected[i].ids.begin() + std::ssize(answer.ids)));
        EXPECT_EQ(answer.finish,
                  count < expected[i].ids.size() || i % 3 == 0 ? Finish::kStopToken : expected[i].finish);
        for (size_t t = 0; t < count; ++t)
          EXPECT_NEAR(answer.columns.rollout_log_probs[t], expected[i].columns.rollout_log_probs[t], 1e-4)
              << type << ", request " << i;
      }
      EXPECT_GT(loop.ahead.computed(), loop.started);  // most passes followed another one
      EXPECT_EQ(loop.cache.available_pages(), pages);
    }
  }
}

// A pass that was started before an answer was known to end has no token for it, and starts no page for it.
TEST(DecodingAhead, DropsRequestsThatHaveEnded) {
  const auto model = tiny_model();
  AheadLoop loop(model->decoder, 32, 4, 2);
  loop.schedule.add(sequence_of(request_of({1, 2}), 0));
  loop.schedule.add(sequence_of(request_of({3, 4}), 1));
  while (!loop.ahead.is_under_way()) loop.step();
  const std::vector<SampledToken> tokens = loop.ahead.read();
  ASSERT_EQ(tokens.size(), 2u);
  ASSERT_TRUE(loop.ahead.is_under_way());
  Sequence& ended = *tokens[0].sequence;
  loop.ahead.drop(ended);
  loop.schedule.remove(ended);
  tokens[1].sequence->take(tokens[1].token);
  const std::vector<SampledToken> rest = loop.ahead.read();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].sequence, tokens[1].sequence);
}

}  // namespace
}  // namespace temper::rollout
