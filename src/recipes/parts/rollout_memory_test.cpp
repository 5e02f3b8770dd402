#include "recipes/parts/rollout_memory.h"

#include <gtest/gtest.h>

#include "base/threads/threads.h"
#include "optimizers/adamw.h"
#include "tests/support/errors.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using training::UpdateState;

const std::vector<data::PackedRow> kRows{test_row(1, {30}), test_row(2, {4, 12}), test_row(3, {20})};

RolloutSettings wish_of(std::vector<UpdateState> asleep = {}) {
  return {{.cache_tokens = 1024, .max_running = 8, .chunk_tokens = 64}, true, 60, std::move(asleep)};
}

// Large enough that plans are about matrices, and not about what libraries round up.
Json config_of(const char* type) {
  Json::Object config = tiny_config(type).as_object();
  for (auto& [key, value] : config) {
    if (key == "hidden_size") value = 256;
    if (key == "intermediate_size" || key == "moe_intermediate_size") value = 512;
    if (key == "head_dim") value = 64;
    if (key == "vocab_size") value = 2048;
  }
  return config;
}

struct TrainedTiny {
  explicit TrainedTiny(bool counted, const char* type = "qwen3")
      : model(of(counted, type)),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, {.micro_batch_tokens = 32}) {
    model->decoder.prepare_positions(64);
    for (int i = 0; i < 2; ++i) trainer.step(kRows, 0);
  }
  static std::unique_ptr<models::Model> of(bool counted, const char* type) {
    models::BuildOptions build;
    build.counted = counted;
    auto model = models::build_model(config_of(type), "medium", build);
    if (!counted) model->decoder.parameters().initialize(1, 0.1);
    return model;
  }
  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  training::Trainer trainer;
};

RolloutMemory rehearsed(const RolloutSettings& wish, const char* type = "qwen3") {
  TrainedTiny counted(true, type);
  return rehearse_rollout(counted.model->decoder, counted.model->decoder.parameters(), nullptr, wish);
}

int64_t bytes_live() {
  int64_t sum = 0;
  for (const RegionUsage& region : pool().usage()) sum += region.live;
  return sum;
}

// What the same engine has in use at most when many requests run.
int64_t measured(const RolloutSettings& wish, const char* type) {
  const int64_t before = bytes_live();
  TrainedTiny real(false, type);
  const training::RolloutTurn turn(real.model->decoder.parameters(), wish.asleep);
  pool().reset_peak();
  rollout::Engine engine(real.model->decoder, wish.engine);
  for (int32_t i = 0; i < 40; ++i) {
    rollout::Request request;
    for (int32_t j = 0; j < 1 + i * 13 % 50; ++j) request.prompt.push_back((i * 5 + j * 7) % 48);
    request.max_new_tokens = 1 + i % 10;
    engine.add(request);
  }
  while (engine.step()) {
  }
  return pool().peak_live() - before;
}

// A plan has room for a task of each thread, all of which seldom need the most at the same time: the more
// threads, the less close it is for models as small as these.
TEST(RolloutMemory, ThePlanIsCloseToWhatARolloutTakes) {
  const ThreadLimit two(2);
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"})
    for (const bool sleeps : {false, true}) {
      const RolloutSettings wish =
          wish_of(sleeps ? std::vector{UpdateState::kOptimizer, UpdateState::kGradients}
                         : std::vector<UpdateState>());
      const RolloutMemory planned = rehearsed(wish, type);
      const auto used = static_cast<double>(measured(wish, type));
      // The CPU keeps what sleeps outside of its pool.
      const auto total = static_cast<double>(planned.plan.total - planned.kept_bytes);
      EXPECT_NEAR(total, used, 0.05 * used)
          << type << sleeps << "\n"
          << memory_table(pool().usage(), pool().peak_live(), &planned.plan);
    }
}

TEST(RolloutMemory, WhatSleepsMakesRoom) {
  const RolloutMemory awake = rehearsed(wish_of()),
                      asleep = rehearsed(wish_of({UpdateState::kOptimizer, UpdateState::kGradients}));
  EXPECT_EQ(awake.kept_bytes, 0);
  EXPECT_EQ(asleep.kept_bytes, awake.plan.of(MemoryTag::kOptimizer));
  EXPECT_EQ(asleep.plan.of(MemoryTag::kOptimizer), 0);
  EXPECT_EQ(asleep.plan.of(MemoryTag::kGradients), 0);
  EXPECT_GT(awake.plan.of(MemoryTag::kGradients), 0);
  EXPECT_EQ(awake.plan.of(MemoryTag::kKvCache), asleep.plan.of(MemoryTag::kKvCache));
  EXPECT_LT(asleep.plan.total - asleep.kept_bytes, awake.plan.total - asleep.kept_bytes);
}

TEST(RolloutMemory, TheCacheGetsWhatFits) {
  RolloutMemory memory = rehearsed(wish_of());
  // Keys and values of two layers, two heads of 64 each, in float32.
  EXPECT_EQ(memory.page_bytes, 16 * 2 * 2 * 2 * 64 * 4);
  EXPECT_EQ(memory.least_cache(), 64);
  const auto fits = [&](int64_t limit) { return memory.cache_that_fits(limit, {}); };
  EXPECT_EQ(fits(memory.plan.total), 1024);
  // A cache that is smaller than requested leaves a margin of a twentieth of the passes' memory.
  const int64_t passes = memory.with_cache(0).total, least = memory.with_cache(64).total + passes / 20;
  EXPECT_EQ(fits(least), 64);
  EXPECT_EQ(fits(least + 10 * memory.page_bytes), 64 + 160);
  EXPECT_EQ(fits(least + 10 * memory.page_bytes - 1), 64 + 144);
  const MemoryPlan less = memory.with_cache(1024 - 160);
  EXPECT_EQ(less.total, memory.plan.total - 10 * memory.page_bytes);
  EXPECT_EQ(less.of(MemoryTag::kKvCache), memory.plan.of(MemoryTag::kKvCache) - 10 * memory.page_bytes);
  expect_has(error_of([&] { fits(least - 1); }, ErrorKind::kResources),
             "48 tokens of cache would fit, and the longest request needs 64");
  memory.wish.may_shrink = false;
  expect_has(error_of([&] { fits(memory.plan.total - 1); }, ErrorKind::kResources),
             "the configuration needs 1024");
}

TEST(RolloutMemory, WhatSleepsMustFitIntoTheCpusMemory) {
  const RolloutMemory memory = rehearsed(wish_of({UpdateState::kOptimizer}));
  memory.check_host(1000, 1000 + memory.kept_bytes);
  expect_has(error_of([&] { memory.check_host(1000, 999 + memory.kept_bytes); }, ErrorKind::kResources),
             "take optimizer out of grpo.engine.sleep");
  rehearsed(wish_of()).check_host(1000, 0);  // copies alone are another's matter
}

TEST(RolloutMemory, TheTableHasBothPhases) {
  const RolloutMemory memory = rehearsed(wish_of({UpdateState::kOptimizer}));
  MemoryPlan updates = memory.plan;
  updates.peaks[static_cast<size_t>(MemoryTag::kOptimizer)] = 3 << 20;
  const std::string table = phases_table(updates, memory, 512);
  expect_has(table, "updates     rollouts");
  expect_has(table, "optimizer        3.00 MiB          0 B");
  expect_has(table, "KV cache: 512 tokens (1024 requested).");
  expect_has(table, "Offloaded to the CPU during rollouts: ");
}

}  // namespace
}  // namespace temper::recipes
