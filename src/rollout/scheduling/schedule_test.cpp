#include "rollout/scheduling/schedule.h"

#include <gtest/gtest.h>

#include "models/adapter.h"
#include "rollout/requests_test_support.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

// A schedule whose passes nothing computes.
struct Scheduled {
  explicit Scheduled(int64_t pages, int64_t max_running = 3, int64_t chunk_tokens = 10)
      : cache({{}, {}}, {.page_tokens = 4}, pages, max_running), schedule(cache, max_running, chunk_tokens) {}

  void add(Request request) { schedule.add(sequence_of(std::move(request), next++)); }
  // The requests and tokens of the next pass, which counts as computed: each sequence that is complete gets
  // token 1.
  std::vector<std::pair<int64_t, int64_t>> pass(uint64_t version = 1) {
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (const auto& [sequence, tokens, decodes] : schedule.next(version)) {
      parts.emplace_back(sequence->result().id, tokens);
      sequence->computed += tokens;
      cache.publish(*sequence);
      if (sequence->left() > 0 || sequence->take({1})) continue;
      finished.push_back(std::move(sequence->result()));
      schedule.remove(*sequence);
    }
    return parts;
  }

  SequenceCache cache;
  Schedule schedule;
  std::vector<Completion> finished;
  int64_t next = 0;
};

using Parts = std::vector<std::pair<int64_t, int64_t>>;

TEST(Schedule, ComputesPromptsInPartsNextToTokens) {
  Scheduled all(32);
  all.add(request_of(prompt_of(3, 1), 0, 0, 3));
  all.add(request_of(prompt_of(12, 2), 0, 0, 2));
  all.add(request_of(prompt_of(6, 3), 0, 0, 1));
  all.add(request_of(prompt_of(2, 4), 0, 0, 1));
  EXPECT_EQ(all.pass(), (Parts{{0, 3}, {1, 7}}));
  EXPECT_EQ(all.schedule.waiting(), 1);  // three run at once
  EXPECT_EQ(all.pass(), (Parts{{0, 1}, {1, 5}, {2, 5}}));
  EXPECT_EQ(all.pass(), (Parts{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(all.schedule.running(), 0);
  EXPECT_EQ(all.pass(), (Parts{{3, 2}}));
  EXPECT_EQ(all.pass(), Parts{});
  EXPECT_EQ(all.finished.size(), 4u);
}

TEST(Schedule, WaitsForAPromptThatItCanShare) {
  Scheduled all(32);
  all.add(request_of(prompt_of(18, 1), 0, 0, 4));
  all.add(request_of(prompt_of(18, 1), 0, 0, 4));
  all.add(request_of(prompt_of(2, 2), 0, 0, 4));
  EXPECT_EQ(all.pass(), (Parts{{0, 10}}));
  EXPECT_EQ(all.schedule.waiting(), 1);
  EXPECT_EQ(all.pass(), (Parts{{0, 8}, {2, 2}}));
  EXPECT_EQ(all.pass(), (Parts{{0, 1}, {2, 1}, {1, 2}}));
  EXPECT_EQ(all.schedule.counts().found, 16);
}

TEST(Schedule, TheLastToStartGivesItsPages) {
  Scheduled all(5);
  all.add(request_of(prompt_of(7, 1), 0, 0, 6));
  all.add(request_of(prompt_of(7, 2), 0, 0, 6));
  while (!all.pass().empty()) {
  }
  ASSERT_EQ(all.finished.size(), 2u);
  EXPECT_EQ(all.finished[0].id, 0);
  EXPECT_EQ(all.finished[0].preemptions, 0);
  EXPECT_EQ(all.finished[1].preemptions, 1);
  EXPECT_EQ(all.schedule.counts().preemptions, 1);
  EXPECT_EQ(all.finished[1].ids.size(), 6u);
  EXPECT_EQ(all.cache.available_pages(), 5);
}

TEST(Schedule, ComputesRunningRequestsAgainByNewWeights) {
  const auto model = tiny_model();
  const auto adapter = models::new_adapter(*model, {.rank = 2, .alpha = 4}, 1, "");
  Scheduled all(32);
  all.add(request_of(prompt_of(3, 1), 0, 0, 9));
  Request request = request_of(prompt_of(4, 1), 0, 0, 9);
  request.adapter = adapter.get();
  all.add(request);
  EXPECT_EQ(all.pass(1), (Parts{{0, 3}, {1, 4}}));
  EXPECT_EQ(all.pass(1), (Parts{{0, 1}, {1, 1}}));
  adapter->parameters().changed();
  EXPECT_EQ(all.pass(1), (Parts{{0, 1}, {1, 6}}));
  EXPECT_EQ(all.schedule.counts().recomputations, 1);
  EXPECT_EQ(all.pass(2), (Parts{{0, 6}, {1, 4}}));
  EXPECT_EQ(all.schedule.counts().recomputations, 3);
}

}  // namespace
}  // namespace temper::rollout
