#include "recipes/plans/layout_cost.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "models/model.h"
#include "parallel/pipeline/timeline.h"
#include "recipes/costs/known_machines.h"
#include "recipes/plans/layout_bounds.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

// Only arithmetic takes time, and all of it is equally fast.
PlannedMachine arithmetic_alone() {
  PlannedMachine planned;
  planned.machine.ops[std::string(Machine::kProducts)] = {.of_flops = true, .curve = {{{1, 1e9}}}};
  planned.machine.ops[std::string(Machine::kMoves)] = {.curve = {{{1, 1e30}}}};
  planned.machine.host = planned.machine.network = {.bytes_per_second = 1e30};
  planned.machine.dtype = DType::kF32;
  return planned;
}

class LayoutCosts : public ::testing::Test {
 protected:
  explicit LayoutCosts(const char* type = "qwen3") {
    setting_.model = tiny_config(type);
    setting_.model.set("num_hidden_layers", 4);
    config_.data.max_length = 32;
    config_.train.rows_per_step = 8;
    config_.train.compute.micro_batch_tokens = 32;
  }
  LayoutCost cost(const RunLayout& layout) const { return cost_of(config_, setting_, machine_, layout); }
  double seconds(const Mesh& mesh, int pipeline = 1, int chunks = 1) const {
    return cost({mesh, pipeline, chunks}).seconds;
  }

  RunConfig config_;
  Setting setting_;
  PlannedMachine machine_ = arithmetic_alone();
};

// The passes that are not rehearsed count like those that are.
TEST_F(LayoutCosts, AnUpdateTakesAsLongAsItsArithmetic) {
  const double one = seconds({});
  const UpdateSize update = size_of_update(config_, setting_);
  EXPECT_EQ(update.rows, 8);
  EXPECT_EQ(update.tokens, 256);
  // The backward pass of attention computes its scores again.
  EXPECT_GT(one, update.flops / 1e9);
  EXPECT_LT(one, 1.1 * update.flops / 1e9);
  config_.train.rows_per_step = 16;
  EXPECT_NEAR(seconds({}), 2 * one, 1e-9 * one);
  config_.train.compute.micro_batch_tokens = 0;
  EXPECT_NEAR(seconds({}), 2 * one, 1e-9 * one);
}

TEST_F(LayoutCosts, RanksDivideTheArithmetic) {
  const double one = seconds({});
  EXPECT_NEAR(seconds({.replicate = 2}), one / 2, 1e-9 * one);
  EXPECT_NEAR(seconds({.shard = 4}), one / 4, 1e-9 * one);
  EXPECT_NEAR(seconds({.shard = 2, .shard_level = 3}), one / 2, 1e-9 * one);
  EXPECT_NEAR(seconds({.tensor = 2}), one / 2, 1e-9 * one);
  EXPECT_NEAR(seconds({.context = 2}), one / 2, 0.01 * one);
}

// What is sent of a layout is what its formulas say: (n - 1) / n of the parameters, once for sums of their
// gradients and once for their new values.
TEST_F(LayoutCosts, BytesAreThoseOfTheParameters) {
  const double elements = LayoutBounds(config_, setting_, machine_).elements();
  EXPECT_NEAR(cost({{.replicate = 4}}).to_host, 2 * 0.75 * 4 * elements, 1024);
  EXPECT_NEAR(cost({{.shard = 4}}).to_host, 2 * 0.75 * 4 * elements, 1024);
  machine_.ranks_of_host = 1;
  EXPECT_NEAR(cost({{.replicate = 4}}).to_network, 2 * 0.75 * 4 * elements, 1024);
  EXPECT_EQ(cost({{.replicate = 4}}).to_host, 0);
  EXPECT_EQ(cost({}).to_network, 0);
}

// With a head that costs next to nothing the stages are equal: (p - 1) / (m + p - 1) of the time is idle.
// With several chunks it is what the schedule says where transfers overlap.
TEST_F(LayoutCosts, StagesWaitAsTheScheduleSays) {
  setting_.model.set("vocab_size", 8);
  const double one = seconds({});
  const LayoutCost two = cost({{}, 2, 1}), chunks = cost({{}, 2, 2});
  EXPECT_NEAR(two.bubble, 1.0 / 9, 0.01);
  EXPECT_NEAR(two.seconds, one / 2 * 9 / 8, 0.02 * one);
  const parallel::PipelineShape shape{2, 2, 8};
  EXPECT_NEAR(chunks.bubble,
              parallel::simulate(parallel::make_schedule(parallel::ScheduleKind::kInterleaved, shape),
                                 parallel::equal_costs(shape, {1, 1, 1}), parallel::Waiting::kForInputs)
                  .bubble_share(),
              0.01);
  EXPECT_NEAR(cost({{}, 4, 1}).bubble, 3.0 / 11, 0.02);
  EXPECT_EQ(cost({}).bubble, 0);
}

TEST_F(LayoutCosts, MemoryIsThatOfTheRehearsal) {
  config_.train.rows_per_step = 2;
  Setting setting = setting_;
  setting.mesh = {.shard = 2};
  EXPECT_EQ(cost({{.shard = 2}}).memory, rehearse(with_layout(config_, {{.shard = 2}}), setting).total);
  EXPECT_LT(cost({{.shard = 2, .shard_level = 3}}).memory, cost({{.replicate = 2}}).memory);
  // Of the stage that needs most.
  int64_t most = 0;
  for (const int stage : {0, 1}) {
    Setting of_stage = setting_;
    of_stage.stage = stage;
    most = std::max(most, rehearse(with_layout(config_, {{}, 2, 1}), of_stage).total);
  }
  EXPECT_EQ(cost({{}, 2, 1}).memory, most);
}

// Gradient sums wait for nothing where links are fast, and longer than the passes where they are slow.
TEST_F(LayoutCosts, SlowLinksAreWaitedFor) {
  const double one = seconds({});
  machine_.machine.host.bytes_per_second = 1e6;
  const LayoutCost slow = cost({{.replicate = 2}});
  EXPECT_GT(slow.waiting, 0);
  EXPECT_NEAR(slow.seconds, one / 2 + slow.to_host / 1e6, 0.01 * slow.seconds);
}

TEST_F(LayoutCosts, FiguresSayWhatTheyComeFrom) {
  EXPECT_EQ(cost({}).source, Source::kComputed);
  machine_.machine.ops_source = Source::kMeasured;
  EXPECT_EQ(cost({}).source, Source::kMeasured);
  EXPECT_EQ(cost({{.shard = 2}}).source, Source::kComputed);
  machine_.machine.host.source = Source::kMeasured;
  EXPECT_EQ(cost({{.shard = 2}}).source, Source::kMeasured);
  machine_.ranks_of_host = 1;
  EXPECT_EQ(cost({{.shard = 2}}).source, Source::kComputed);
}

// No layout is faster than its bound, or needs less memory.
TEST_F(LayoutCosts, BoundsAreBelowWhatIsRehearsed) {
  machine_ = {known_machine("h200"), 2};
  config_.model.dtype = DType::kBF16;
  const LayoutBounds bounds(config_, setting_, machine_);
  const layers::DecoderConfig model =
      models::configure(setting_.model, "config.json", models::Purpose::kTraining);
  for (const RunLayout& layout : layouts_of(4, model, config_, 8).possible) {
    const LayoutCost found = cost(layout);
    const LayoutBound bound = bounds.of(layout);
    EXPECT_LE(bound.seconds, found.seconds) << to_string(layout);
    EXPECT_LE(bound.memory, found.memory) << to_string(layout);
  }
}

class MixtureCosts : public LayoutCosts {
 protected:
  MixtureCosts() : LayoutCosts("qwen3_moe") {}
};

TEST_F(MixtureCosts, ExpertsAreDividedAndTheirTokensTravel) {
  const double one = seconds({});
  const LayoutCost divided = cost({{.expert = 2}});
  EXPECT_NEAR(divided.seconds, one / 2, 0.05 * one);
  EXPECT_LT(divided.memory, cost({{.replicate = 2}}).memory);
}

}  // namespace
}  // namespace temper::recipes
