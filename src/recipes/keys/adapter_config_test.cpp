#include "recipes/keys/adapter_config.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "config/load.h"
#include "config/print.h"
#include "layers/decoder.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

RunConfig run_config() {
  RunConfig config;
  config.output = "out";
  config.train.steps = 100;
  config.train.tokens_per_step = 4096;
  config.data.train = {{.path = "all.jsonl"}};
  config.data.eval = {{.path = "held-out.jsonl"}};
  return config;
}

WeightTable tiny_table() { return layers::decoder_weight_table(models::configure(tiny_config(), "tiny")); }

TEST(AdapterConfig, WhatIsLeftOutIsTheRuns) {
  const RunConfig run = run_of_adapter(run_config(), {.name = "a"});
  EXPECT_EQ(run.output, "out/adapters/a");
  EXPECT_EQ(run.data.train[0].path, "all.jsonl");
  EXPECT_EQ(run.train.steps, 100);
  EXPECT_EQ(run.train.tokens_per_step, 4096);
  ASSERT_EQ(run.adapters.size(), 1u);
}

TEST(AdapterConfig, ItsOwnDataAndScheduleReplaceTheRuns) {
  AdapterConfig adapter{.name = "a", .train = {{.path = "own.jsonl"}}};
  adapter.lr = 0.5;
  adapter.epochs = 3;
  adapter.rows_per_step = 2;
  adapter.schedule = training::ScheduleType::kLinear;
  adapter.seed = 9;
  const RunConfig run = run_of_adapter(run_config(), adapter);
  EXPECT_EQ(run.data.train[0].path, "own.jsonl");
  EXPECT_TRUE(run.data.eval.empty()) << "held-out rows of other data say nothing";
  EXPECT_EQ(run.train.optimizer.lr, 0.5);
  EXPECT_EQ(run.train.steps, 0);
  EXPECT_EQ(run.train.epochs, 3);
  EXPECT_EQ(run.train.rows_per_step, 2);
  EXPECT_EQ(run.train.tokens_per_step, 0);
  EXPECT_EQ(run.train.schedule.type, training::ScheduleType::kLinear);
  EXPECT_EQ(run.train.seed, 9);
}

// The learner's own configuration, which a resumed run is compared with.
TEST(AdapterConfig, IsWrittenAndReadAgain) {
  AdapterConfig adapter{.name = "a", .rank = 4, .bias = LoraBias::kAll, .target_modules = {"q_proj"}};
  adapter.patterns = {{"q_proj", 8, std::nullopt}};
  RunConfig run = run_of_adapter(run_config(), adapter), again;
  run.model.path = "model";
  const TemporaryDirectory folder;
  write_file(folder / "config.yaml", config::dump(config::schema_of(run)));
  config::Schema schema = config::schema_of(again);
  config::load(schema, folder / "config.yaml", {});
  const WeightTable base = tiny_table();
  const AdapterChoice was = choose_adapter(run.adapters[0], base),
                      is = choose_adapter(again.adapters[0], base);
  EXPECT_EQ(is.lora, was.lora);
  EXPECT_EQ(is.plan.targets.size(), was.plan.targets.size());
}

TEST(AdapterConfig, Defaults) {
  const WeightTable base = tiny_table();
  const AdapterChoice choice = choose_adapter({}, base);
  EXPECT_EQ(choice.lora.rank, 16);
  EXPECT_EQ(choice.lora.alpha, 32);
  EXPECT_EQ(choice.plan.targets.size(), 14u);
  expect_has(error_of([&] {
               choose_adapter({.patterns = {{"q_proj", std::nullopt, std::nullopt}}}, base);
             }),
             "[adapters.adapter.patterns] 'q_proj' has neither a rank nor an alpha");
}

}  // namespace
}  // namespace temper::recipes
