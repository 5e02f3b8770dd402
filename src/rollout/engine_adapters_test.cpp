// Requests whose adapter learns while they run.
#include <gtest/gtest.h>

#include "models/adapter.h"
#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

TEST(EngineAdapters, ARunningRequestContinuesWithItsAdaptersNewWeights) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    const auto model = tiny_model({.type = type});
    const auto learning = models::new_adapter(*model, {.rank = 4, .alpha = 16}, 1, ""),
               resting = models::new_adapter(*model, {.rank = 4, .alpha = 16}, 2, "");
    learning->parameters().initialize(1, 0.3);
    resting->parameters().initialize(2, 0.3);
    Request request = request_of(prompt_of(20, 2), 1, 1.0, 10), other = request;
    request.adapter = learning.get();
    other.adapter = resting.get();
    const Request plain = request_of(prompt_of(20, 2), 1, 1.0, 10);
    const Completion undisturbed = answers_of(model->decoder, {request})[0];
    Engine engine(model->decoder, {});
    const int64_t changed = engine.add(request), kept = engine.add(other), alone = engine.add(plain);
    for (int i = 0; i < 3; ++i) engine.step();
    learning->parameters().initialize(8, 0.3);
    const std::map<int64_t, Completion> found = answers(engine);
    const Completion& across = found.at(changed);
    EXPECT_EQ(across.recomputations, 1) << type;
    EXPECT_NE(across.ids, undisturbed.ids) << type;
    EXPECT_NE(across.adapter_versions.front(), across.adapter_versions.back());
    EXPECT_EQ(across.adapter_versions.back(), learning->parameters().version());
    // Those behind the change are what the new weights say behind what was there.
    Request rest = request;
    size_t old = 0;
    while (across.adapter_versions[old] == across.adapter_versions.front())
      rest.prompt.push_back(across.ids[old++]);
    ASSERT_GT(old, 0u);
    rest.max_new_tokens = 10 - static_cast<int64_t>(old);
    EXPECT_EQ(Ids(across.ids.begin() + static_cast<std::ptrdiff_t>(old), across.ids.end()),
              answers_of(model->decoder, {rest})[0].ids)
        << type;
    // Nothing has changed for the others.
    EXPECT_EQ(found.at(kept).recomputations, 0);
    EXPECT_EQ(found.at(kept).ids, answers_of(model->decoder, {other})[0].ids) << type;
    EXPECT_EQ(found.at(alone).recomputations, 0);
    EXPECT_EQ(found.at(alone).ids, answers_of(model->decoder, {plain})[0].ids) << type;
  }
}

}  // namespace
}  // namespace temper::rollout
