// Texts that continue earlier ones, in a cache that grows.
#include <cmath>

#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "rollout/engine_test_support.h"

namespace temper::rollout {
namespace {

class EngineConversation : public testing::Test {
 protected:
  Completion answer(Engine& engine, const Request& request) {
    engine.add(request);
    Completion found = answers(engine).begin()->second;
    EXPECT_EQ(found.ids, answers_of(model_->decoder, {request})[0].ids);
    return found;
  }
  std::unique_ptr<models::Model> model_ = tiny_model();
};

// What attention keeps, latents, and states of hybrids.
TEST_F(EngineConversation, ComputesOnlyWhatIsNew) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    model_ = tiny_model({.type = type, .experts = std::string_view(type) == "deepseek_v3"});
    Engine engine(model_->decoder, small_pages());
    Ids prompt{3, 14, 15};
    int64_t known = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const Completion found = answer(engine, request_of(prompt, 0, 0, 6));
      EXPECT_EQ(found.cached_tokens, known) << "turn " << turn;
      prompt.insert(prompt.end(), found.ids.begin(), found.ids.end());
      known = std::ssize(prompt) - 1;  // the last token was chosen, never computed
      prompt.insert(prompt.end(), {40, 41});
    }
    EXPECT_EQ(answer(engine, request_of({3, 14, 7, 7})).cached_tokens, 0);
  }
}

// An end is one request's, which writes behind it.
TEST_F(EngineConversation, AnEndIsContinuedOnce) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    model_ = tiny_model({.type = type});
    Engine engine(model_->decoder, small_pages());
    Ids prompt{3, 14, 15};
    const Completion first = answer(engine, request_of(prompt, 0, 0, 3));
    prompt.insert(prompt.end(), first.ids.begin(), first.ids.end());
    Ids one = prompt, other = prompt;
    one.push_back(40);
    other.push_back(41);
    EXPECT_EQ(answer(engine, request_of(one, 0, 0, 4)).cached_tokens, 5);
    EXPECT_EQ(answer(engine, request_of(other, 0, 0, 4)).cached_tokens, 0);
  }
}

TEST_F(EngineConversation, BelongsToTheWeights) {
  Engine engine(model_->decoder, small_pages());
  Request request = request_of({3, 14, 15, 9, 26}, 0, 0, 4);
  const auto continued = [&] {
    Request next = request;
    const Completion found = answer(engine, request);
    next.prompt.insert(next.prompt.end(), found.ids.begin(), found.ids.end());
    return next;
  };
  Request next = continued();
  model_->decoder.parameters().initialize(77, 0.3);
  EXPECT_EQ(answer(engine, next).cached_tokens, 0);
  next = continued();
  // Each update of an optimizer changes them, too.
  layers::ParameterStore& weights = model_->decoder.parameters();
  optimizers::AdamW optimizer(weights, model_->decoder.ops(), {});
  EXPECT_EQ(answer(engine, next).cached_tokens, std::ssize(next.prompt) - 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    const GradTarget target = weights[i].grad->target(weights[i].value);
    std::fill_n(target.buffer.data<float>(), target.buffer.numel(), 1.f);
  }
  optimizer.step(0.1);
  EXPECT_EQ(answer(engine, next).cached_tokens, 0);
  const auto adapter = models::new_adapter(*model_, {.rank = 4, .alpha = 16}, 1, "");
  request.adapter = next.adapter = adapter.get();
  EXPECT_EQ(answer(engine, next).cached_tokens, 0);
  next = continued();
  EXPECT_GT(answer(engine, next).cached_tokens, 0);
  adapter->parameters().initialize(2, 0.3);
  EXPECT_EQ(answer(engine, next).cached_tokens, 0);
}

// Logits that are no numbers leave nothing behind.
TEST_F(EngineConversation, AFailureIsNotContinued) {
  Engine engine(model_->decoder, small_pages());
  model_->decoder.parameters().set_rows("norm.weight", 3, Tensor::from(std::vector<float>{std::nanf("")}));
  const Ids prompt{3, 14, 15};
  engine.add(request_of(prompt));
  EXPECT_EQ(answers(engine).begin()->second.finish, Finish::kFailed);
  engine.add(request_of({3, 14, 15, 9}));
  EXPECT_EQ(answers(engine).begin()->second.cached_tokens, 0);
}

TEST_F(EngineConversation, TheCacheGrowsOnlyWhereNoRequestIs) {
  Engine engine(model_->decoder, small_pages());
  engine.add(request_of({1, 2, 3}, 0, 0, 5));
  EXPECT_THROW(engine.add(request_of({1, 2, 3}, 0, 0, 20)), Error);
  answers(engine);
  engine.add(request_of({1, 2, 3}, 0, 0, 20));
  EXPECT_EQ(answers(engine).begin()->second.ids.size(), 20u);
  EXPECT_THROW(engine.add(request_of(Ids(64, 1))), Error);
}

}  // namespace
}  // namespace temper::rollout
