#include "rollout/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "tests/support/tiny_model.h"

namespace temper::rollout {
namespace {

using Ids = std::vector<int32_t>;

class GeneratorTest : public testing::Test {
 protected:
  // Greedy without a cache: the whole text again for each token.
  Ids slow(Ids ids, int64_t count) const {
    const size_t prompt = ids.size();
    for (int64_t i = 0; i < count; ++i) {
      Tape tape(false);
      const auto input = layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())});
      const Tensor hidden = model_->decoder.forward(tape, input).value;
      const Tensor last = hidden.narrow(0, hidden.dim(0) - 1, 1);
      const Tensor logits = model_->decoder.logits(tape, tape.constant(last)).value;
      ids.push_back(ops::sample(logits.values<float>(), {}, {}, 0).id);
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt), ids.end()};
  }
  std::unique_ptr<models::Model> model_ = tiny_model();
  Generator generator_{model_->decoder};
};

TEST_F(GeneratorTest, TheCacheChangesNothing) {
  const Ids prompt{3, 14, 15, 9, 26};
  const Generation found = generator_.generate(prompt, {.max_new_tokens = 20});
  EXPECT_EQ(found.ids, slow(prompt, 20));
  EXPECT_EQ(found.reason, StopReason::kLength);
  EXPECT_EQ(found.prompt_tokens, 5);
}

// What the sequence keeps are latents, whichever kernels read them.
TEST_F(GeneratorTest, TheLatentCacheChangesNothing) {
  const Ids prompt{3, 14, 15, 9, 26};
  for (const auto& ops : {TinyModel().ops, ops::OpsConfig()}) {
    model_ = tiny_model({.type = "deepseek_v3", .ops = ops});
    Generator generator(model_->decoder);
    EXPECT_EQ(generator.generate(prompt, {.max_new_tokens = 40}).ids, slow(prompt, 40));
    const Ids other{3, 14, 15, 7};
    const Generation found = generator.generate(other, {.max_new_tokens = 12});
    EXPECT_EQ(found.ids, slow(other, 12));
    EXPECT_EQ(found.prompt_tokens, 1);
  }
}

// One model, several adapters: what one computed is of no use to another.
TEST_F(GeneratorTest, AdaptersAreSwitchedPerRequest) {
  const auto adapter_of = [&](uint64_t seed) {
    auto adapter = models::new_adapter(*model_, {.rank = 4, .alpha = 16}, seed, "");
    adapter->parameters().initialize(seed, 0.3);
    return adapter;
  };
  const auto a = adapter_of(1), b = adapter_of(2);
  const Ids prompt{3, 14, 15, 9, 26};
  const auto answer = [&](Generator& generator, const layers::Adapter* adapter) {
    return generator.generate(prompt, {.max_new_tokens = 12, .adapter = adapter});
  };
  std::vector<Ids> alone;
  for (const layers::Adapter* adapter : {a.get(), b.get()}) {
    Generator fresh(model_->decoder);
    alone.push_back(answer(fresh, adapter).ids);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(answer(generator_, a.get()).ids, alone[0]);
  EXPECT_EQ(answer(generator_, nullptr).ids, slow(prompt, 12));
  EXPECT_EQ(answer(generator_, b.get()).ids, alone[1]);
  EXPECT_EQ(answer(generator_, b.get()).prompt_tokens, 1);  // the cache is its own
  EXPECT_EQ(answer(generator_, a.get()).prompt_tokens, 5);
}

TEST_F(GeneratorTest, AConversationComputesOnlyWhatIsNew) {
  Ids prompt{3, 14, 15};
  const Ids first = generator_.generate(prompt, {.max_new_tokens = 6}).ids;
  prompt.insert(prompt.end(), first.begin(), first.end());
  prompt.insert(prompt.end(), {40, 41});
  const Generation second = generator_.generate(prompt, {.max_new_tokens = 6});
  // The last answered token was chosen, never computed: it comes with the two new ones.
  EXPECT_EQ(second.prompt_tokens, 3);
  EXPECT_EQ(second.ids, slow(prompt, 6));
  // Another beginning, a shorter text, and the same text again.
  const Ids other{3, 14, 7, 7};
  EXPECT_EQ(generator_.generate(other, {.max_new_tokens = 4}).ids, slow(other, 4));
  const Generation again = generator_.generate(Ids{3, 14}, {.max_new_tokens = 4});
  EXPECT_EQ(again.prompt_tokens, 1);
  EXPECT_EQ(again.ids, slow({3, 14}, 4));
}

// What another version of the weights computed is not used again.
TEST_F(GeneratorTest, TheCacheBelongsToTheWeights) {
  const Ids prompt{3, 14, 15, 9, 26};
  const Ids before = generator_.generate(prompt, {.max_new_tokens = 12}).ids;
  EXPECT_EQ(generator_.generate(prompt, {.max_new_tokens = 12}).prompt_tokens, 1);
  layers::ParameterStore& weights = model_->decoder.parameters();
  weights.initialize(77, 0.3);
  const Generation after = generator_.generate(prompt, {.max_new_tokens = 12});
  EXPECT_EQ(after.prompt_tokens, 5);
  EXPECT_EQ(after.ids, slow(prompt, 12));
  EXPECT_NE(after.ids, before);
  // Each update of an optimizer, too.
  optimizers::AdamW optimizer(weights, model_->decoder.ops(), {});
  EXPECT_EQ(generator_.generate(prompt, {.max_new_tokens = 12}).prompt_tokens, 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    const GradTarget target = weights[i].grad->target(weights[i].value);
    std::fill_n(target.buffer.data<float>(), target.buffer.numel(), 1.f);
  }
  optimizer.step(0.1);
  const Generation updated = generator_.generate(prompt, {.max_new_tokens = 12});
  EXPECT_EQ(updated.prompt_tokens, 5);
  EXPECT_EQ(updated.ids, slow(prompt, 12));
}

TEST_F(GeneratorTest, TheCacheBelongsToTheAdaptersWeights) {
  auto adapter = models::new_adapter(*model_, {.rank = 4, .alpha = 16}, 1, "");
  const Ids prompt{3, 14, 15, 9, 26};
  const auto computed = [&] {
    return generator_.generate(prompt, {.max_new_tokens = 2, .adapter = adapter.get()}).prompt_tokens;
  };
  EXPECT_EQ(computed(), 5);
  EXPECT_EQ(computed(), 1);
  adapter->parameters().initialize(2, 0.3);
  EXPECT_EQ(computed(), 5);
}

// A model whose logits are no numbers does not answer with token 0.
// Sleeping gives the pages of states back, and other weights are there when it wakes: whatever the pages hold
// then, the tokens are those of before.
TEST_F(GeneratorTest, AHybridWakesOnPoisonedPages) {
  constexpr size_t kPages = size_t{1} << 20;
  const Ids prompt{3, 14, 15, 9, 26};
  for (const char* type : {"qwen3_next", "qwen3_5_text"}) {
    model_ = tiny_model({.type = type});
    const Ids expected = slow(prompt, 12);
    const auto poison = [](const Tensor& memory) {
      const auto values = memory.values<float>();
      std::fill(values.begin(), values.end(), std::nanf(""));
    };
    for (int cycle = 0; cycle < 20; ++cycle) {
      // States are made of pages that held NaN.
      poison(Tensor::empty({kPages}, DType::kF32, MemoryTag::kKvCache));
      Generator generator(model_->decoder);
      EXPECT_EQ(generator.generate(prompt, {.max_new_tokens = 12}).ids, expected);
      pool().pause(MemoryTag::kKvCache, cycle % 2 == 0 ? PauseMode::kKeep : PauseMode::kDrop);
      pool().resume(MemoryTag::kKvCache);
      model_->decoder.parameters().changed();
      const Generation awake = generator.generate(prompt, {.max_new_tokens = 12});
      EXPECT_EQ(awake.ids, expected) << type << ", cycle " << cycle;
      EXPECT_EQ(awake.prompt_tokens, 5);
    }
  }
}

TEST_F(GeneratorTest, LogitsWithoutADistributionAreAnError) {
  layers::ParameterStore& weights = model_->decoder.parameters();
  const Tensor norm = Tensor::from(std::vector<float>{std::nanf("")});
  const Ids prompt{3, 14, 15};
  const GenerateOptions greedy{.max_new_tokens = 8}, sampled{.sampling = {.temperature = 1}};
  generator_.generate(prompt, greedy);
  weights.set_rows("norm.weight", 3, norm);
  for (const GenerateOptions& options : {greedy, sampled}) {
    Ids seen;
    try {
      generator_.generate(prompt, options, [&](int32_t id) { return seen.push_back(id), true; });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(std::string(error.what()).find("[generate] the model's logits for new token 1 (position 3"),
                0u)
          << error.what();
    }
    EXPECT_TRUE(seen.empty());
  }
}

TEST_F(GeneratorTest, StopsAtStopTokensContextAndCallback) {
  const Ids prompt{3, 14, 15, 9, 26};
  const Ids free = slow(prompt, 8);
  const Generation stopped = generator_.generate(prompt, {.max_new_tokens = 8, .stop_ids = {free[3]}});
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  const auto first = std::find(free.begin(), free.end(), free[3]);
  EXPECT_EQ(stopped.ids, Ids(free.begin(), first));

  Ids seen;
  const Generation called = generator_.generate(prompt, {.max_new_tokens = 8}, [&](int32_t id) {
    seen.push_back(id);
    return seen.size() < 2;
  });
  EXPECT_EQ(called.reason, StopReason::kCallback);
  EXPECT_EQ(called.ids, Ids(free.begin(), free.begin() + 2));
  EXPECT_EQ(seen, called.ids);

  Ids full(60);
  std::iota(full.begin(), full.end(), -10);
  for (int32_t& id : full) id = (id + 58) % 48;
  const Generation at_end = generator_.generate(full, {.max_new_tokens = 20});
  EXPECT_EQ(at_end.reason, StopReason::kContext);
  EXPECT_EQ(at_end.ids.size(), 4u);
}

TEST_F(GeneratorTest, SamplingDependsOnSeedOnly) {
  const Ids prompt{1, 2, 3};
  const GenerateOptions five{.sampling = {.temperature = 2, .seed = 5}, .max_new_tokens = 16};
  GenerateOptions six = five;
  six.sampling.seed = 6;
  const Ids a = generator_.generate(prompt, five).ids;
  EXPECT_EQ(generator_.generate(prompt, five).ids, a);
  EXPECT_NE(generator_.generate(prompt, six).ids, a);
}

TEST_F(GeneratorTest, RefusesWhatCannotBeContinued) {
  EXPECT_THROW(generator_.generate(Ids{}, {}), Error);
  EXPECT_THROW(generator_.generate(Ids(64, 1), {}), Error);
}

}  // namespace
}  // namespace temper::rollout
