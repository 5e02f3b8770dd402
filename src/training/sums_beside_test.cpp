// Gradients of several ranks are summed while backward still runs, and values are gathered while the update
// does.
#include <gtest/gtest.h>

#include <map>

#include "base/tracing/trace.h"
#include "collectives/launch.h"
#include "parallel/mesh_groups.h"
#include "tests/support/packed_rows.h"
#include "tests/support/ranked_model.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

struct Counts {
  int within = 0, after = 0;  // of the span "backward"
};

Counts count_sums(const std::vector<trace::Event>& events, std::string_view sum) {
  Counts counts;
  double end = 0;  // of the last backward pass
  for (const trace::Event& event : events)
    if (event.name == "backward") end = std::max(end, event.end);
  for (const trace::Event& event : events)
    if (event.name == sum) ++(event.begin < end ? counts.within : counts.after);
  return counts;
}

// The sums over ranks of one step of a model with a head of its own.
Counts sums_of_step(const TrainerOptions& options, bool sharded) {
  Counts counts;
  collectives::launch("threads", {.ranks = 2, .deadline = 120}, [&](collectives::Group& ranks) {
    TinyModel tiny;
    tiny.ops = {};  // kernels that form the head's gradient with the loss
    tiny.sizes.emplace_back("tie_word_embeddings", Json(false));
    const auto model = tiny_model(tiny);
    EXPECT_NE(model->decoder.parameters().table().find("head.weight"), nullptr);
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {},
                                {.shard = sharded ? &ranks : nullptr});
    Trainer trainer(model->decoder, optimizer, options, nullptr, ranks);
    const std::vector<data::PackedRow> rows{test_row(1, {20, 11}), test_row(2, {33})};
    trainer.step(rows, 1e-3);
    trace::start();
    trainer.step(rows, 1e-3);
    const std::vector<trace::Event> events = trace::stop();
    if (ranks.rank() == 0) counts = count_sums(events, sharded ? "reduce_scatter" : "all_reduce");
  });
  return counts;
}

// All but the embedding's, which backward reaches last.
TEST(SumsBesideBackward, BeginWhenAGradientIsComplete) {
  for (const bool sharded : {false, true}) {
    const Counts one = sums_of_step({}, sharded);
    EXPECT_GT(one.within, 10);
    EXPECT_LE(one.after, 1);
    const Counts several = sums_of_step({.micro_batch_tokens = 33}, sharded);
    EXPECT_EQ(several.within, one.within);
    EXPECT_EQ(several.after, one.after);
  }
}

// A layer's gradients of an earlier micro-batch look complete until the layer is computed again: its sums
// wait.
TEST(SumsBesideBackward, WaitForLayersThatAreComputedAgain) {
  const Counts all = sums_of_step({}, false),
               again = sums_of_step({.micro_batch_tokens = 33, .checkpointing = Checkpointing::kFull}, false);
  EXPECT_EQ(again.within + again.after, all.within + all.after);
  EXPECT_GT(again.within, 0);  // the head's
}

// Of two stages of two replicas each, by rank.
std::vector<Counts> sums_of_stages(const TrainerOptions& options, bool tied, int chunks) {
  std::vector<Counts> counts(4);
  collectives::launch("threads", {.ranks = 4, .deadline = 120}, [&](collectives::Group& ranks) {
    Json config = tiny_config();
    config.set("num_hidden_layers", 4);
    config.set("tie_word_embeddings", tied);
    const parallel::MeshGroups groups(ranks, {.replicate = 2});
    const auto model = ranked_model(groups, {.config = config, .chunks = chunks, .deviation = 0.05});
    optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {}, groups.sharing());
    Trainer trainer(model->decoder, optimizer, options, nullptr, groups.update());
    const auto own = static_cast<uint32_t>(groups.update().rows.rank());
    // The second replica has more micro-batches.
    std::vector<data::PackedRow> rows{test_row(own, {20, 11}), test_row(2 + own, {33})};
    if (own == 1) rows.push_back(test_row(5, {17}));
    trace::start();
    trainer.step(rows, 1e-3);
    counts[static_cast<size_t>(ranks.rank())] = count_sums(trace::stop(), "all_reduce");
  });
  return counts;
}

// In each part of the layers, while the last micro-batch passes it. What two stages have is summed at the
// end.
TEST(SumsBesideBackward, BeginInTheLastPassesOfStages) {
  TrainerOptions options{.micro_batch_tokens = 33};
  for (const bool tied : {false, true}) {
    const std::vector<Counts> whole = sums_of_stages(options, tied, 1);
    options.pipeline = parallel::ScheduleKind::kZbH1;
    const std::vector<Counts> split = sums_of_stages(options, tied, 1);
    options.pipeline = parallel::ScheduleKind::kInterleaved;
    const std::vector<Counts> interleaved = sums_of_stages(options, tied, 2);
    options.pipeline = parallel::ScheduleKind::k1F1B;
    for (size_t rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(fmt::format("rank {}, tied {}", rank, tied));
      for (const Counts& found : {whole[rank], split[rank], interleaved[rank]}) {
        EXPECT_GT(found.within, 10);
        EXPECT_LE(found.after, rank < 2 || tied ? 1 : 0);  // the embedding's
        EXPECT_EQ(found.within + found.after, whole[rank].within + whole[rank].after);
      }
    }
  }
}

}  // namespace
}  // namespace temper::training
