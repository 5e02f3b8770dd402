// Plans of memory where stages of a pipeline have some of the layers each.
#include <gtest/gtest.h>

#include "collectives/launch.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "recipes/plans/pipeline_checks.h"
#include "recipes/plans/plan_test_support.h"
#include "recipes/plans/rehearsal.h"
#include "recipes/plans/stage_report.h"
#include "tests/support/errors.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

// A rank of each stage has its own layers: all of them together have the weights and states of the model. The
// plan is that of the stage that needs most: the first one, which has activations of several micro-batches,
// or the last one, where these are few and the loss is over a large vocabulary.
TEST(StagePlans, AreThatOfTheStageThatNeedsMost) {
  RunConfig config;
  config.data.max_length = 256;
  config.train.compute.micro_batch_tokens = 256;
  Json json = medium_config();
  json.set("vocab_size", 16384);
  json.set("tie_word_embeddings", false);
  const Setting setting{json, detect_cpu()};
  const RunMemory whole = rehearse(config, setting);
  EXPECT_TRUE(whole.stages.empty());
  config.parallel.pipeline = 2;
  const RunMemory plan = rehearse(config, setting);
  ASSERT_EQ(plan.stages.size(), 2u);
  const StageMemory &first = plan.stages[0], &last = plan.stages[1];
  EXPECT_EQ(first.layers.front().first, 0);
  EXPECT_EQ(last.layers.front().first, first.layers.front().last);
  EXPECT_EQ(last.layers.front().last, 4);
  for (const MemoryTag tag : {MemoryTag::kWeights, MemoryTag::kOptimizer})
    EXPECT_NEAR(static_cast<double>(first.of(tag) + last.of(tag)), static_cast<double>(whole.of(tag)),
                0.01 * static_cast<double>(whole.of(tag)))
        << to_string(tag);
  EXPECT_GT(first.total, last.total);
  EXPECT_EQ(plan.total, first.total);
  EXPECT_EQ(plan.peaks, first.peaks);
  config.adapters = {{.rank = 8}};
  config.train.compute.activation_checkpointing = Checkpointing::kFull;
  const RunMemory of_adapter = rehearse(config, setting);
  EXPECT_GT(of_adapter.stages[1].total, of_adapter.stages[0].total);
  EXPECT_EQ(of_adapter.total, of_adapter.stages[1].total);
  EXPECT_EQ(of_adapter.peaks, of_adapter.stages[1].peaks);
}

// What the ranks of both stages have in use at most, together, in one process.
TEST(StagePlans, AreCloseToWhatStagesTake) {
  RunConfig config;
  config.model.dtype = DType::kF32;
  config.data.max_length = 256;
  config.train.rows_per_step = 8;
  config.train.compute.micro_batch_tokens = 256;
  config.parallel.pipeline = 2;
  const Json json = medium_config();
  const RunMemory plan = rehearse(config, {json, detect_cpu()});
  const MemoryUsage before = pool().usage();
  pool().reset_peak();
  collectives::launch("threads", {.ranks = 2, .deadline = 60}, [&](collectives::Group& ranks) {
    const parallel::MeshGroups groups(ranks, {});
    models::BuildOptions build;
    build.dtype = config.model.dtype;
    build.ranks = model_ranks(groups, models::configure(json, "medium"), config, {});
    const auto model = models::build_model(json, "medium", build);
    model->decoder.parameters().initialize(1, 0.02);
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {}, groups.sharing());
    training::Trainer trainer(model->decoder, optimizer, {.micro_batch_tokens = 256}, nullptr,
                              groups.update());
    for (int i = 0; i < 2; ++i) trainer.step(std::vector<data::PackedRow>(8, row_of(256)), 1e-4);
  });
  for (const MemoryTag tag :
       {MemoryTag::kWeights, MemoryTag::kGradients, MemoryTag::kOptimizer, MemoryTag::kActivations}) {
    const auto at = static_cast<size_t>(tag);
    const int64_t planned = plan.stages[0].peaks[at] + plan.stages[1].peaks[at],
                  used = pool().usage()[at].peak - before[at].live;
    // Activations of the stages need not have their peaks at the same moment.
    const double least = tag == MemoryTag::kActivations ? 0.7 : 0.99;
    EXPECT_LE(static_cast<double>(used), 1.01 * static_cast<double>(planned)) << to_string(tag);
    EXPECT_GE(static_cast<double>(used), least * static_cast<double>(planned)) << to_string(tag);
  }
}

// The last stage keeps the hidden states of a teacher for all passes of an update. A plan rehearses some of
// them.
TEST(StagePlans, CountWhatATeacherReadsAhead) {
  RunConfig config;
  config.recipe = "distill";
  config.model.dtype = DType::kF32;
  config.data.max_length = 256;
  config.train.compute.micro_batch_tokens = 256;
  config.parallel.pipeline = 2;
  config.adapters = {{.rank = 8}};  // whose model teaches
  const auto activations = [&](int64_t rows) {
    config.train.rows_per_step = rows;
    const RunMemory plan = rehearse(config, {medium_config(), detect_cpu()});
    return std::pair(plan.stages[0].of(MemoryTag::kActivations), plan.stages[1].of(MemoryTag::kActivations));
  };
  const int64_t of_pass = 256 * medium_config().at("hidden_size").as_int() * 4;
  const auto few = activations(8), as_planned = activations(16), many = activations(100);
  EXPECT_EQ(many.first, few.first);
  EXPECT_EQ(as_planned.second - few.second, 8 * of_pass);
  EXPECT_EQ(many.second - as_planned.second, 84 * of_pass);
}

// By stage, and by region.
TEST(StagePlans, AreTables) {
  StageMemory first, last;
  first.layers = {{0, 2}, {3, 4}};
  first.peaks[0] = first.total = 3 << 20;
  last.layers = {{2, 3}};
  EXPECT_EQ(describe_stages({first, last}),
            "stage 0        layers 0 to 1, layer 3, embedding; memory about 3.00 MiB\n"
            "stage 1        layer 2, head; memory about 0 B\n");
  const std::string table = stages_table({first, last});
  expect_has(table, "planned           stage 0      stage 1\nweights          3.00 MiB          0 B\n");
  expect_has(table, "total            3.00 MiB          0 B\n");
}

}  // namespace
}  // namespace temper::recipes
