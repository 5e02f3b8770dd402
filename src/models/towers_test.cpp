// Towers of all families: what pictures may see of each other, orders, and what is recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/tower_model.h"
#include "towers/places.h"
#include "towers/qwen2_5_vl/qwen2_5_vl.h"
#include "towers/qwen2_vl/qwen2_vl.h"
#include "towers/qwen3_vl/qwen3_vl.h"

namespace temper::towers {
namespace {

using layers::SeenRows;
using layers::TowerInput;
using op_testing::normal;
using op_testing::tensor_of;
using op_testing::values_of;

constexpr TowerSizes kSizes{
    .depth = 3, .width = 16, .heads = 2, .inner = 24, .text_width = 12, .channels = 3, .patch = 2};

struct Kind {
  std::string name;
  std::shared_ptr<const layers::Tower> tower;
};
std::vector<Kind> kinds() {
  return {{"qwen2_vl", qwen2_vl(kSizes)},
          {"windows", qwen2_5_vl(kSizes, 2, {})},
          {"qwen2_5_vl", qwen2_5_vl(kSizes, 2, {1})},
          {"qwen3_vl", qwen3_vl(kSizes, 25, {0, 2})}};
}

const char* const kKernels[] = {"eager", ""};

std::unique_ptr<TowerModel> model_of(const Kind& kind, const char* kernels, DType dtype = DType::kF32) {
  auto model = std::make_unique<TowerModel>(kind.tower, ops::OpsConfig{.fallback = kernels}, dtype);
  model->store().initialize(1, 0.2);
  return model;
}

Tensor patches_of(int64_t count, uint64_t seed = 5) {
  const Shape shape{count, kSizes.patch_values()};
  return tensor_of(normal(seed, shape), shape, DType::kF32);
}

TowerInput input_of(std::vector<PatchGrid> grids) {
  int64_t count = 0;
  for (const PatchGrid& grid : grids) count += grid.patches();
  return {patches_of(count), std::move(grids)};
}

SeenRows seen_by(const TowerModel& model, const TowerInput& input) {
  Tape tape(false);
  return model.tower().forward(tape, input, {});
}

// Of pictures and videos; no grid is a multiple of the windows.
const std::vector<PatchGrid> kGrids{{1, 6, 10}, {3, 6, 4}, {1, 2, 2}, {2, 10, 6}};

template <class F>
void for_each_model(const F& check, DType dtype = DType::kF32) {
  for (const Kind& kind : kinds())
    for (const char* const kernels : kKernels) {
      SCOPED_TRACE(kind.name + (*kernels == 0 ? ", fast" : ", eager"));
      check(kind, *model_of(kind, kernels, dtype));
    }
}

TEST(PatchTower, FramesAloneHaveTheRowsThatTheyHaveTogether) {
  for_each_model([](const Kind& kind, const TowerModel& model) {
    const TowerInput all = input_of(kGrids);
    const SeenRows together = seen_by(model, all);
    int64_t patch = 0, token = 0;
    for (const PatchGrid& grid : kGrids)
      for (int32_t frame = 0; frame < grid.frames; ++frame) {
        const PatchGrid one{1, grid.rows, grid.columns};
        const SeenRows alone = seen_by(model, {all.patches.narrow(0, patch, one.patches()), {one}});
        const int64_t tokens = kind.tower->tokens(one);
        const auto expect = [&](const Var& whole, const Var& part) {
          EXPECT_TRUE(op_testing::close(values_of(whole.value.narrow(0, token, tokens)),
                                        values_of(part.value), 1e-6));
        };
        expect(together.merged, alone.merged);
        for (size_t i = 0; i < alone.deepstack.size(); ++i) expect(together.deepstack[i], alone.deepstack[i]);
        patch += one.patches();
        token += tokens;
      }
    EXPECT_EQ(token, together.merged.shape()[0]);
    EXPECT_EQ(together.merged.shape()[1], kSizes.text_width);
  });
}

// The tokens that a change of one patch reaches, by the rows that have other bits.
std::set<int64_t> reached(const TowerModel& model, const TowerInput& input, int64_t patch) {
  const op_testing::Doubles before = values_of(seen_by(model, input).merged.value);
  TowerInput changed{input.patches.clone(), input.grids};
  changed.patches.data<float>()[patch * kSizes.patch_values()] += 1;
  const op_testing::Doubles after = values_of(seen_by(model, changed).merged.value);
  std::set<int64_t> tokens;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) tokens.insert(static_cast<int64_t>(i) / kSizes.text_width);
  return tokens;
}

// In the order of the pictures: of 3 × 5 tokens in windows of 2 × 2, and of a second frame.
TEST(PatchTower, WindowsSeeThemselvesAlone) {
  const TowerInput input = input_of({{2, 6, 10}});
  for (const char* const kernels : kKernels) {
    const auto windows = model_of(kinds()[1], kernels), with_full_block = model_of(kinds()[2], kernels);
    const auto of_patch = [&](int64_t token) { return reached(*windows, input, 4 * token + 3); };
    EXPECT_EQ(of_patch(0), (std::set<int64_t>{0, 1, 5, 6}));
    EXPECT_EQ(of_patch(8), (std::set<int64_t>{2, 3, 7, 8}));
    EXPECT_EQ(of_patch(9), (std::set<int64_t>{4, 9}));
    EXPECT_EQ(of_patch(10), (std::set<int64_t>{10, 11}));
    EXPECT_EQ(of_patch(14), (std::set<int64_t>{14}));
    EXPECT_EQ(of_patch(15 + 14), (std::set<int64_t>{15 + 14}));
    EXPECT_EQ(reached(*with_full_block, input, 0).size(), 15u);
  }
}

// A window that is as large as every picture changes nothing.
TEST(PatchTower, LargeWindowsAreFrames) {
  const TowerInput input = input_of(kGrids);
  const Kind wide{"wide", qwen2_5_vl(kSizes, 5, {})}, full{"full", qwen2_5_vl(kSizes, 2, {0, 1, 2})};
  for (const char* const kernels : kKernels)
    EXPECT_TRUE(op_testing::close(values_of(seen_by(*model_of(wide, kernels), input).merged.value),
                                  values_of(seen_by(*model_of(full, kernels), input).merged.value), 1e-5));
}

TEST(PatchTower, WindowsOfAnyGridAreAPermutation) {
  for (const PatchGrid& grid : {PatchGrid{1, 2, 2}, {1, 8, 8}, {2, 6, 10}, {3, 2, 18}, {1, 26, 14}}) {
    const Windows windows = windows_of(std::vector{grid, grid}, 2, 4);
    std::vector<int32_t> sorted = windows.order;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::ssize(sorted), 2 * grid.patches() / 4);
    for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<int32_t>(i));
    const auto starts = windows.starts.values<int32_t>();
    EXPECT_EQ(starts.back(), 2 * grid.patches());
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      EXPECT_GT(starts[i + 1], starts[i]);
      EXPECT_LE(starts[i + 1] - starts[i], 64);
    }
  }
}

// The weights are those of the place, of which corners are the table's.
TEST(Taps, AreTheFourEntriesAroundAPlace) {
  constexpr int64_t kSide = 5;
  const std::vector<PatchGrid> grids{{1, 6, 10}, {2, 2, 4}, {1, 10, 2}};
  const Places places = places_of(grids, 2);
  const Taps taps = taps_of(grids, places, kSide);
  const auto entries = taps.entries.values<int32_t>();
  const float* const weights = taps.weights.data<float>();
  size_t patch = 0;
  for (const PatchGrid& grid : grids)
    for (int64_t i = 0; i < grid.patches(); ++i, ++patch) {
      double row = 0, column = 0, sum = 0;
      for (size_t tap = 4 * patch; tap < 4 * patch + 4; ++tap) {
        ASSERT_GE(entries[tap], 0);
        ASSERT_LT(entries[tap], kSide * kSide);
        row += weights[tap] * static_cast<double>(entries[tap] / kSide);
        column += weights[tap] * static_cast<double>(entries[tap] % kSide);
        sum += weights[tap];
      }
      EXPECT_NEAR(sum, 1, 1e-6);
      EXPECT_NEAR(row, places.rows[patch] * (kSide - 1.0) / (grid.rows - 1), 1e-5);
      EXPECT_NEAR(column, places.columns[patch] * (kSide - 1.0) / (grid.columns - 1), 1e-5);
    }
}

// A frame as large as the table reads it as it is.
TEST(Taps, OfATableAsLargeAsTheFrameAreItsEntries) {
  const std::vector<PatchGrid> grids{{1, 6, 6}};
  const Places places = places_of(grids, 2);
  const Taps taps = taps_of(grids, places, 6);
  for (size_t patch = 0; patch < 36; ++patch)
    for (size_t tap = 4 * patch; tap < 4 * patch + 4; ++tap)
      EXPECT_EQ(taps.weights.data<float>()[tap], tap % 4 == 0 ? 1 : 0);
  for (size_t patch = 0; patch < 36; ++patch)
    EXPECT_EQ(taps.entries.values<int32_t>()[4 * patch], places.rows[patch] * 6 + places.columns[patch]);
}

std::map<std::string, op_testing::Doubles> gradients_of(TowerModel& model,
                                                        const layers::TowerOptions& options) {
  model.store().reset_gradients();
  Tape tape;
  const SeenRows seen = model.tower().forward(tape, input_of(kGrids), options);
  model.backward(tape, seen, [&](const std::string& what) {
    const Shape shape = seen.merged.shape();
    return tensor_of(normal(what.size() + static_cast<uint64_t>(what.back()), shape), shape,
                     seen.merged.dtype());
  });
  std::map<std::string, op_testing::Doubles> all;
  for (const auto& [name, gradient] : model.gradients()) {
    EXPECT_TRUE(gradient.defined()) << name;
    if (gradient.defined()) all[name] = values_of(gradient);
  }
  return all;
}

// Of every parameter, and the same bits where blocks are computed again.
TEST(PatchTower, BlocksThatAreComputedAgainGiveTheSameGradients) {
  for_each_model([](const Kind&, TowerModel& model) {
    model.store().enable_gradients(DType::kF32);
    const auto kept = gradients_of(model, {}), again = gradients_of(model, {.checkpoint = true});
    for (const auto& [name, values] : kept) {
      EXPECT_EQ(values, again.at(name)) << name;
      EXPECT_GT(*std::max_element(values.begin(), values.end()), 0) << name;
    }
  });
}

TEST(PatchTower, CheckpointsKeepLess) {
  for_each_model([](const Kind&, TowerModel& model) {
    model.store().enable_gradients(DType::kF32);
    Tape kept, again;
    model.tower().forward(kept, input_of(kGrids), {});
    model.tower().forward(again, input_of(kGrids), {.checkpoint = true});
    EXPECT_LT(again.size(), kept.size());
  });
}

// Whether it has no gradients, or is not to be trained in this pass.
TEST(PatchTower, FrozenRecordsNothing) {
  for_each_model([](const Kind&, TowerModel& model) {
    Tape tape;
    const SeenRows without = model.tower().forward(tape, input_of(kGrids), {});
    EXPECT_EQ(tape.size(), 0u);
    model.store().enable_gradients(DType::kF32);
    const SeenRows frozen = model.tower().forward(tape, input_of(kGrids), {.frozen = true});
    EXPECT_EQ(tape.size(), 0u);
    EXPECT_FALSE(frozen.merged.requires_grad());
    EXPECT_EQ(values_of(without.merged.value), values_of(frozen.merged.value));
    const SeenRows trained = model.tower().forward(tape, input_of(kGrids), {});
    EXPECT_TRUE(trained.merged.requires_grad());
    EXPECT_EQ(values_of(trained.merged.value), values_of(frozen.merged.value));
  });
}

// bfloat16 stays near float32, whose weights it has rounded.
TEST(PatchTower, BFloat16) {
  for (const Kind& kind : kinds())
    for (const char* const kernels : kKernels) {
      SCOPED_TRACE(kind.name);
      const auto wide = seen_by(*model_of(kind, kernels), input_of(kGrids)).merged,
                 narrow = seen_by(*model_of(kind, kernels, DType::kBF16), input_of(kGrids)).merged;
      EXPECT_EQ(narrow.dtype(), DType::kBF16);
      EXPECT_TRUE(op_testing::close(values_of(narrow.value), values_of(wide.value), 0.05));
    }
}

TEST(PatchTower, CountsTokensAndOperations) {
  const auto tower = qwen2_vl(kSizes);
  EXPECT_EQ(tower->tokens({3, 6, 10}), 45);
  // Patches, then per block attention and the MLP, then the merger.
  const double patches = 180, width = 16, joined = 64;
  EXPECT_EQ(tower->flops(std::vector<PatchGrid>{{3, 6, 10}}),
            2 * patches * 24 * width +
                3 * (patches * (8 * width * width + 4 * width * 24) + 4 * width * 3 * 60 * 60) +
                45 * 2 * (joined * joined + joined * 12));
}

TEST(PatchTower, RefusesInputs) {
  const auto model = model_of(kinds()[0], "eager");
  const auto refuses = [&](const TowerInput& input, const std::string& message) {
    op_testing::expect_error([&] { seen_by(*model, input); }, message);
  };
  refuses({{}, {{1, 2, 2}}}, "[tower] patches are missing, needs [patches, 24] float32 without gaps");
  refuses({Tensor::zeros({4, 23}, DType::kF32), {{1, 2, 2}}},
          "[tower] patches are [4, 23], needs [patches, 24] float32 without gaps");
  refuses({patches_of(8), {{1, 2, 2}}}, "[tower] there are 8 patches; the grids of 1 pictures have 4");
  refuses(
      {patches_of(6), {{1, 2, 3}}},
      "[tower] a grid is 1 × 2 × 3 patches (frames, rows, columns); rows and columns must be multiples of 2");
  refuses(
      {patches_of(0), {{0, 2, 2}}},
      "[tower] a grid is 0 × 2 × 2 patches (frames, rows, columns); rows and columns must be multiples of 2");
}

TEST(PatchTower, RefusesConfigurations) {
  const auto with = [](const std::function<void(TowerSizes&)>& change) {
    TowerSizes sizes = kSizes;
    change(sizes);
    return sizes;
  };
  op_testing::expect_error([&] { qwen2_vl(with([](TowerSizes& s) { s.heads = 3; })); },
                           "vision_config: 3 heads of a width of 16; a head's width must be a multiple of 4");
  op_testing::expect_error([&] { qwen2_vl(with([](TowerSizes& s) { s.depth = 0; })); },
                           "vision_config: depth is 0, needs 1 or more");
  op_testing::expect_error(
      [&] {
        qwen2_5_vl(kSizes, 2, {1, 3});
      },
      "vision_config: fullatt_block_indexes has block 3; blocks must rise and be 0 to 2");
  op_testing::expect_error(
      [&] { qwen2_5_vl(kSizes, 0, {1}); },
      "vision_config: window_size must be at least one token, spatial_merge_size · patch_size pixels");
  op_testing::expect_error(
      [&] {
        qwen3_vl(kSizes, 25, {1, 1});
      },
      "vision_config: deepstack_visual_indexes has block 1; blocks must rise and be 0 to 2");
  op_testing::expect_error([&] { qwen3_vl(kSizes, 24, {}); },
                           "vision_config: num_position_embeddings is 24, needs a square number");
}

}  // namespace
}  // namespace temper::towers
