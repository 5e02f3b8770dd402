#include "training/passes/micro_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/tiny_model.h"

namespace temper::training {
namespace {

data::PackedRow row_of(const std::vector<int64_t>& lengths, int32_t first) {
  data::PackedRow row;
  row.document_lengths = lengths;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < length; ++i) {
      row.ids.push_back(first++ % 48);
      row.targets.push_back(i + 1 < length && i % 3 != 0 ? first % 48 : data::kIgnore);
    }
  return row;
}

TEST(MicroBatch, IsFilledUpForADevice) {
  const std::vector<data::PackedRow> rows{row_of({60, 50}, 0), row_of({40}, 7)};
  const MicroBatch exact = gather(rows, 0, 2, {.padded = false}), full = gather(rows, 0, 2, {.padded = true});
  EXPECT_EQ(exact.input.ids.numel(), 150);
  EXPECT_EQ(full.input.ids.numel(), 256);
  EXPECT_EQ(full.input.cu_seqlens.numel(), 9);  // three documents, 60 + 46 tokens of padding, empty ones
  EXPECT_EQ(full.tokens, 150);
  EXPECT_EQ(full.documents.size(), exact.documents.size());
  EXPECT_EQ(full.documents.size(), 3u);
  EXPECT_EQ(std::count(full.targets.values<int32_t>().begin() + 150, full.targets.values<int32_t>().end(),
                       data::kIgnore),
            106);
  // Whole already: nothing is added but empty documents.
  const std::vector<data::PackedRow> whole{row_of({100, 20, 8}, 0)};
  const MicroBatch same = gather(whole, 0, 1, {.padded = true});
  EXPECT_EQ(same.input.ids.numel(), 128);
  EXPECT_EQ(same.input.cu_seqlens.numel(), 5);
  EXPECT_EQ(same.input.cu_seqlens.values<int32_t>()[4], 128);
}

TEST(MicroBatch, EachOwnersRowsAreFilledUp) {
  const std::vector<data::PackedRow> rows{row_of({60}, 0), row_of({40}, 7), row_of({130}, 3),
                                          row_of({128}, 9)};
  const std::vector<size_t> owners{4, 4, 0, 4};
  const MicroBatch batch = gather(rows, 0, 4, {.padded = true}, owners);
  EXPECT_EQ(batch.input.ids.numel(), 128 + 256 + 128);
  EXPECT_EQ(batch.tokens, 60 + 40 + 130 + 128);
  EXPECT_EQ(batch.documents.size(), 4u);
  const auto targets = batch.targets.values<int32_t>();
  const auto rows_of_second = row_of({130}, 3);
  EXPECT_TRUE(
      std::equal(rows_of_second.targets.begin(), rows_of_second.targets.end(), targets.begin() + 128));
  EXPECT_EQ(std::count(targets.begin() + 100, targets.begin() + 128, data::kIgnore), 28);
  EXPECT_EQ(std::count(targets.begin() + 258, targets.begin() + 384, data::kIgnore), 126);
  // Documents: 60, 40, 28 of padding, 130, 126 of padding, 128, and empty ones.
  const auto starts = batch.input.cu_seqlens.values<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(starts.begin(), starts.end()),
            (std::vector<int32_t>{0, 60, 100, 128, 258, 384, 512, 512, 512}));
  EXPECT_EQ(gather(rows, 0, 2, {.padded = true}, owners).input.ids.numel(), 128);
}

TEST(MicroBatch, TakesTheContentsOfAnotherOfItsShape) {
  MicroBatch to = gather({row_of({60, 50}, 0)}, 0, 1, {.padded = true});
  const MicroBatch from = gather({row_of({20, 33, 10}, 5), row_of({40}, 2)}, 0, 2, {.padded = true}),
                   other = gather({row_of({20, 110}, 5)}, 0, 1, {.padded = true});
  EXPECT_FALSE(same_shape(to, other));
  EXPECT_FALSE(same_shape(to, from));  // four documents and a filling one, not two
  const MicroBatch alike = gather({row_of({90, 11}, 5)}, 0, 1, {.padded = true});
  ASSERT_TRUE(same_shape(to, alike));
  const void* memory = to.input.ids.raw();
  assign(to, alike);
  EXPECT_EQ(to.input.ids.raw(), memory);
  EXPECT_EQ(to.tokens, 101);
  for (const auto& [a, b] : {std::pair{&to.input.ids, &alike.input.ids},
                             {&to.input.positions, &alike.input.positions},
                             {&to.input.cu_seqlens, &alike.input.cu_seqlens},
                             {&to.input.counted, &alike.input.counted},
                             {&to.targets, &alike.targets}})
    for (int64_t i = 0; i < a->numel(); ++i) EXPECT_EQ(a->data<int32_t>()[i], b->data<int32_t>()[i]);
}

// Padding has no loss and no gradient.
TEST(MicroBatch, FillingChangesNoNumbers) {
  const std::vector<data::PackedRow> rows{row_of({30, 17}, 3)};
  const auto model = tiny_model();
  layers::ParameterStore& parameters = model->decoder.parameters();
  parameters.enable_gradients(DType::kF32);
  double losses[2];
  std::vector<std::vector<float>> gradients(2);
  for (const bool pad : {false, true}) {
    const MicroBatch batch = gather(rows, 0, 1, {.padded = pad});
    parameters.reset_gradients();
    Tape tape;
    const auto loss =
        model->decoder.loss(tape, model->decoder.forward(tape, batch.input), batch.targets, {1.f / 20, 0});
    losses[pad] = loss.loss.value.item();
    tape.backward(loss.loss);
    for (size_t i = 0; i < parameters.size(); ++i)
      for (const float g : parameters[i].grad->grad().values<float>()) gradients[pad].push_back(g);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-6);
  ASSERT_EQ(gradients[1].size(), gradients[0].size());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_NEAR(gradients[1][i], gradients[0][i], 1e-6 + 1e-4 * std::abs(gradients[0][i])) << i;
}

// Nor does it count in the loads of a mixture, in the load balancing loss or in what that adds to gradients.
TEST(MicroBatch, RoutersDoNotCountWhatFillsUp) {
  const std::vector<data::PackedRow> rows{row_of({30, 17}, 3)};
  for (const char* kernels : {"eager", ""}) {
    const auto model = tiny_model({.type = "qwen3_moe", .ops = {.fallback = kernels}});
    layers::ParameterStore& parameters = model->decoder.parameters();
    parameters.enable_gradients(DType::kF32);
    double losses[2];
    std::vector<std::vector<double>> seen(2);
    for (const bool pad : {false, true})
      for (const bool checkpoint : {false, true}) {
        const MicroBatch batch = gather(rows, 0, 1, {.padded = pad});
        parameters.reset_gradients();
        Tape tape;
        layers::Decoder::Options options;
        options.routers = model->decoder.watch_routers();
        options.checkpoint_layers = checkpoint;
        model->decoder.forward(tape, batch.input, options);
        const Var loss = model->decoder.balance().loss(tape, *options.routers, 0, {1, 1.f / 47, {}});
        losses[pad] = loss.value.item();
        tape.backward(loss);
        for (const layers::RouterTrace::Router& router : options.routers->routers)
          for (const int32_t count : router.parts[0].counts.on({}).values<int32_t>())
            seen[pad].push_back(count);
        for (size_t i = 0; i < parameters.size(); ++i)
          if (parameters[i].grad->grad().defined())
            for (const float g : parameters[i].grad->grad().values<float>()) seen[pad].push_back(g);
      }
    EXPECT_NEAR(losses[1], losses[0], 1e-5);
    ASSERT_EQ(seen[1].size(), seen[0].size());
    for (size_t i = 0; i < seen[0].size(); ++i)
      EXPECT_NEAR(seen[1][i], seen[0][i], 1e-6 + 1e-4 * std::abs(seen[0][i])) << i;
  }
}

// Where rows have several owners, each has its own padding.
TEST(MicroBatch, RoutersDoNotCountWhatFillsUpTheRowsOfAnOwner) {
  const std::vector<data::PackedRow> rows{row_of({30, 17}, 3), row_of({50, 50}, 1), row_of({40}, 2)};
  const std::vector<size_t> owners{0, 0, 1};
  const auto model = tiny_model({.type = "qwen3_moe"});
  const MicroBatch batch = gather(rows, 0, 3, {.padded = true}, owners);
  layers::Decoder::Options options;
  options.routers = model->decoder.watch_routers();
  options.adapters = {{nullptr, 256}, {nullptr, 128}};
  Tape tape;
  model->decoder.forward(tape, batch.input, options);
  for (const layers::RouterTrace::Router& router : options.routers->routers) {
    ASSERT_EQ(router.parts.size(), 2u);
    for (const size_t part : {0, 1}) {
      const auto counts = router.parts[part].counts.values<int32_t>();
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end() - 1, 0), 2 * (part == 0 ? 147 : 40));
    }
  }
}

}  // namespace
}  // namespace temper::training
