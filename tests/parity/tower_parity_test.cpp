// Towers of pictures: what transformers gives for the pictures and videos of recorded cases, and gradients of
// every parameter (tools/oracles/take_tower_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "checkpoints/files/safetensors.h"
#include "tests/support/relative_error.h"
#include "tests/support/tower_model.h"
#include "towers/places.h"

namespace temper::parity {
namespace {

std::string tower_folder(const std::string& name) {
  return join_path(TEMPER_SOURCE_DIR "/tests/goldens/towers", name);
}

std::vector<layers::PatchGrid> grids_of(const Tensor& table) {
  std::vector<layers::PatchGrid> grids;
  const auto sizes = table.values<int32_t>();
  for (size_t i = 0; i < sizes.size(); i += 3) grids.push_back({sizes[i], sizes[i + 1], sizes[i + 2]});
  return grids;
}

std::vector<int32_t> whole_numbers(const Tensor& tensor) {
  const Tensor flat = tensor.reshape({tensor.numel()});
  return {flat.values<int32_t>().begin(), flat.values<int32_t>().end()};
}

class TowerParity : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string folder() const { return tower_folder(std::get<0>(GetParam())); }
  std::unique_ptr<TowerModel> load() const {
    auto model = std::make_unique<TowerModel>(
        folder(), ops::OpsConfig{.fallback = std::get<1>(GetParam()) == "eager" ? "eager" : ""});
    model->load(join_path(folder(), "model.safetensors"));
    return model;
  }
  bool has(const std::string& name) const { return golden_.find(name) != nullptr; }
  Tensor golden(const std::string& name) const { return golden_.tensor(name); }
  layers::TowerInput part(size_t i) const {
    return {golden(fmt::format("{}.patches", i)), grids_of(golden(fmt::format("{}.grids", i)))};
  }
  // Below which a gradient's size does not lower what it is measured by. A bias of all keys moves all scores
  // of a query alike: its gradient is zero but for rounding, and is measured by that of queries.
  double least_scale(const std::string& name) const {
    constexpr std::string_view kKeys = "k_proj.bias";
    if (!name.ends_with(kKeys)) return 0;
    double largest = 0;
    const Tensor queries = golden("grad." + name.substr(0, name.size() - kKeys.size()) + "q_proj.bias");
    for (const float value : queries.values<float>()) largest = std::max(largest, std::fabs(double{value}));
    return largest;
  }
  size_t parts() const {
    size_t count = 0;
    while (has(fmt::format("{}.patches", count))) ++count;
    return count;
  }
  // All pictures and videos, one after the other.
  layers::TowerInput all() const {
    layers::TowerInput whole;
    std::vector<Tensor> patches;
    for (size_t i = 0; i < parts(); ++i) {
      const layers::TowerInput one = part(i);
      patches.push_back(one.patches);
      whole.grids.insert(whole.grids.end(), one.grids.begin(), one.grids.end());
    }
    whole.patches = rows_together(patches);
    return whole;
  }

  checkpoints::SafetensorsFile golden_{join_path(folder(), "golden.safetensors")};
};

TEST_P(TowerParity, Rows) {
  const auto model = load();
  ASSERT_GE(parts(), 2u);
  for (size_t i = 0; i < parts(); ++i) {
    const auto name = [&](const std::string& what) { return fmt::format("{}.{}", i, what); };
    Tape tape(false);
    Tensor hidden;
    const layers::SeenRows seen = model->tower().forward(tape, part(i), {.hidden = &hidden});
    if (has(name("hidden"))) {
      EXPECT_LE(relative_norm_error(hidden, golden(name("hidden"))), 2e-5) << i;
    }
    EXPECT_LE(relative_norm_error(seen.merged.value, golden(name("merged"))), 2e-5) << i;
    EXPECT_EQ(has(name(fmt::format("deepstack.{}", seen.deepstack.size()))), false) << i;
    for (size_t k = 0; k < seen.deepstack.size(); ++k)
      EXPECT_LE(relative_norm_error(seen.deepstack[k].value, golden(name(fmt::format("deepstack.{}", k)))),
                2e-5)
          << i << ", deepstack " << k;
  }
}

// Each picture has the same rows among others.
TEST_P(TowerParity, PackedRows) {
  const auto model = load();
  Tape tape(false);
  const layers::SeenRows seen = model->tower().forward(tape, all(), {});
  int64_t first = 0;
  for (size_t i = 0; i < parts(); ++i) {
    const Tensor expected = golden(fmt::format("{}.merged", i));
    EXPECT_LE(relative_norm_error(seen.merged.value.narrow(0, first, expected.dim(0)), expected), 2e-5) << i;
    first += expected.dim(0);
  }
  EXPECT_EQ(first, seen.merged.shape()[0]);
}

TEST_P(TowerParity, Gradients) {
  for (const bool checkpoint : {false, true}) {
    const auto model = load();
    model->store().enable_gradients(DType::kF32);
    Tape tape;
    const layers::SeenRows seen = model->tower().forward(tape, all(), {.checkpoint = checkpoint});
    model->backward(tape, seen, [&](const std::string& what) { return golden("seed." + what); });
    for (const auto& [name, gradient] : model->gradients())
      EXPECT_LE(relative_error(gradient, golden("grad." + name), least_scale(name)), 1e-4)
          << name << (checkpoint ? ", computed again" : "");
  }
}

TEST_P(TowerParity, WholeNumbers) {
  if (!has("0.places")) GTEST_SKIP() << "pictures of one size";
  const Json vision = Json::parse_file(join_path(folder(), "config.json")).at("vision_config");
  const int64_t merge = vision.at("spatial_merge_size").as_int();
  for (size_t i = 0; i < parts(); ++i) {
    const auto name = [&](const std::string& what) { return fmt::format("{}.{}", i, what); };
    const std::vector<layers::PatchGrid> grids = part(i).grids;
    const towers::Places places = towers::places_of(grids, merge);
    std::vector<int32_t> both;
    for (size_t patch = 0; patch < places.rows.size(); ++patch)
      both.insert(both.end(), {places.rows[patch], places.columns[patch]});
    EXPECT_EQ(both, whole_numbers(golden(name("places")))) << i;
    if (has(name("order"))) {
      const int64_t side = vision.at("window_size").as_int() / merge / vision.at("patch_size").as_int();
      const towers::Windows windows = towers::windows_of(grids, merge, side);
      EXPECT_EQ(windows.order, whole_numbers(golden(name("order")))) << i;
      EXPECT_EQ(whole_numbers(windows.starts), whole_numbers(golden(name("bounds")))) << i;
    }
    if (has(name("taps"))) {
      const int64_t entries = vision.at("num_position_embeddings").as_int();
      const towers::Taps taps = towers::taps_of(grids, places, std::lround(std::sqrt(entries)));
      EXPECT_EQ(whole_numbers(taps.entries), whole_numbers(golden(name("taps")))) << i;
      EXPECT_LE(relative_error(taps.weights.reshape({taps.weights.numel() / 4, 4}), golden(name("weights"))),
                1e-6)
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TowerParity,
                         testing::Combine(testing::ValuesIn(list_directory(tower_folder(""))),
                                          testing::Values("eager", "fast")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace temper::parity
