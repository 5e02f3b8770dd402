// Gradients of several ranks are summed while backward still runs, and values are gathered while the update
// does.
#include <gtest/gtest.h>

#include <map>

#include "base/tracing/trace.h"
#include "collectives/launch.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

struct Counts {
  int within = 0, after = 0;  // of the span "backward"
};

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
    if (ranks.rank() != 0) return;
    double end = 0;  // of the last backward pass
    for (const trace::Event& event : events)
      if (event.name == "backward") end = std::max(end, event.end);
    for (const trace::Event& event : events)
      if (event.name == (sharded ? "reduce_scatter" : "all_reduce"))
        ++(event.begin < end ? counts.within : counts.after);
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

}  // namespace
}  // namespace temper::training
