// The engine between requests, while others have its memory.
#include <gtest/gtest.h>

#include "base/error.h"
#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

// Others have its memory meanwhile, so that nothing of what was in it may be found, whatever the weights.
TEST(Engine, SleepsBetweenRequests) {
  const auto held = [] { return pool().usage()[static_cast<size_t>(MemoryTag::kKvCache)].held; };
  for (const char* type : kTypes) {
    const auto model =
        tiny_model({.type = type, .ops = {}, .experts = std::string_view(type) == "deepseek_v3"});
    const std::vector<Request> requests = mixed_requests(20, 1.5);
    const std::vector<Completion> expected = answers_of(model->decoder, requests);
    Engine engine(model->decoder, {});
    const int64_t before = held();
    std::vector<int64_t> found;
    for (int turn = 0; turn < 3; ++turn) {
      for (const Request& request : requests) engine.add(request);
      const int64_t so_far = engine.counts().found;
      size_t i = 0;
      for (const auto& [id, answer] : answers(engine)) {
        EXPECT_EQ(answer.ids, expected[i].ids) << type << ", turn " << turn << ", request " << i;
        EXPECT_EQ(answer.columns.rollout_log_probs, expected[i++].columns.rollout_log_probs)
            << type << ", turn " << turn;
      }
      EXPECT_EQ(i, requests.size());
      found.push_back(engine.counts().found - so_far);
      engine.sleep();
      engine.sleep();  // which it does already
      EXPECT_LT(held(), before);
      EXPECT_THROW(engine.add(requests[0]), Error);
      EXPECT_THROW(engine.step(), Error);
      engine.wake();
      engine.wake();
    }
    EXPECT_EQ(found, std::vector(3, found[0])) << type;
  }
}

// Its memory need not come back before it is given back.
TEST(Engine, EndsWhileItSleeps) {
  const auto model = tiny_model();
  Pool& memory = pool();
  const int64_t limit = memory.limit();
  {
    Engine engine(model->decoder, {});
    engine.sleep();
    int64_t awake = 0;
    for (const RegionUsage& region : memory.usage()) awake += region.paused ? 0 : region.live;
    memory.set_limit(awake);
    EXPECT_THROW(engine.wake(), Error);
  }
  memory.set_limit(limit);
  EXPECT_EQ(memory.usage()[static_cast<size_t>(MemoryTag::kKvCache)].live, 0);
  EXPECT_FALSE(memory.usage()[static_cast<size_t>(MemoryTag::kKvCache)].paused);
}

}  // namespace
}  // namespace temper::rollout
