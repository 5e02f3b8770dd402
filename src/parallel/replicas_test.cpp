#include "parallel/replicas.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "base/error.h"
#include "collectives/launch.h"
#include "weights/weight_table.h"

namespace temper::parallel {
namespace {

// Of four tensor ranks: one of all ranks, one of which each has a part, and one whose parts neighbours share.
WeightTable table() {
  WeightTable table;
  const WeightAxis heads = WeightAxis::divided("heads*head_dim", 4);
  table.add({.name = "norm", .shape = {8}, .axes = {"hidden"}, .sources = {{"norm", 8}}});
  table.add({.name = "down",
             .shape = {8, 16},
             .axes = {"hidden", WeightAxis::divided("intermediate")},
             .sources = {{"down", 8}}});
  table.add({.name = "k",
             .shape = {8, 4},
             .axes = {heads, "hidden"},
             .sources = {{"k", 8}},
             .segments = {{8, true}}});
  // Neighbours share the first rows alone.
  table.add({.name = "kv",
             .shape = {24, 4},
             .axes = {heads, "hidden"},
             .sources = {{"kv", 24}},
             .segments = {{8, true}, {16}}});
  return table;
}

// The errors of the ranks where `changed` changes an element of its part of a tensor.
std::vector<std::string> errors_of(const Mesh& mesh, int changed, size_t tensor) {
  std::mutex mutex;
  std::vector<std::string> errors;
  collectives::launch("threads", {.ranks = mesh.size()}, [&](collectives::Group& group) {
    const WeightTable weights = table();
    const Layout layout(weights, mesh, group.rank());
    std::vector<PlacedTensor> held;
    for (size_t i = 0; i < weights.specs().size(); ++i) {
      const Tensor whole = Tensor::empty(weights.specs()[i].shape, DType::kF32, MemoryTag::kWorkspace),
                   own = Tensor::empty(layout[i].own(), DType::kF32, MemoryTag::kWorkspace);
      for (int64_t k = 0; k < whole.numel(); ++k) whole.data<float>()[k] = static_cast<float>(k);
      layout[i].take_own(whole, own);
      if (group.rank() == changed && i == tensor) own.data<float>()[1] += 1e-6f;
      held.push_back({weights.specs()[i].name, own, &layout[i]});
    }
    std::string error;
    try {
      check_replicas(group, held, 7);
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  });
  return errors;
}

TEST(Replicas, AreTheSameBits) {
  for (const Mesh& mesh : {Mesh{.replicate = 3}, Mesh{.tensor = 4}, Mesh{.replicate = 2, .tensor = 4}})
    for (const std::string& error : errors_of(mesh, -1, 0)) EXPECT_EQ(error, "");
}

TEST(Replicas, ThatPartWaysAreNamedOnAllRanks) {
  for (const std::string& error : errors_of({.replicate = 3}, 2, 1))
    EXPECT_NE(error.find("ranks 0 and 2 hold other bits of 'down' after update 7"), std::string::npos)
        << error;
  for (const std::string& error : errors_of({.tensor = 4}, 1, 0))
    EXPECT_NE(error.find("ranks 0 and 1 hold other bits of 'norm'"), std::string::npos) << error;
  for (const std::string& error : errors_of({.tensor = 4}, 3, 2))  // whose neighbour has the same head
    EXPECT_NE(error.find("ranks 2 and 3 hold other bits of 'k'"), std::string::npos) << error;
  for (const std::string& error : errors_of({.tensor = 4}, 3, 3))
    EXPECT_NE(error.find("ranks 2 and 3 hold other bits of 'kv'"), std::string::npos) << error;
  for (const std::string& error : errors_of({.tensor = 4}, 3, 1))
    EXPECT_EQ(error, "") << "no other rank has it";
}

// Compared after every tenth update, as before checkpoints.
TEST(Replicas, ThatPartWaysAnywhereInALargeTensorAreFound) {
  constexpr int64_t kWide = 1 << 17;  // of which a part is compared each time
  WeightTable weights;
  weights.add({.name = "wide", .shape = {2, kWide}, .axes = {"hidden", "wide"}, .sources = {{"wide", 2}}});
  for (const int64_t element : {int64_t{0}, kWide / 2 + 1, kWide + 1, 2 * kWide - 1}) {
    std::atomic<int> found = 0;
    collectives::launch("threads", {.ranks = 2}, [&](collectives::Group& group) {
      const Layout layout(weights, {.replicate = 2}, group.rank());
      const Tensor own = Tensor::zeros({2, kWide}, DType::kF32, MemoryTag::kWorkspace);
      if (group.rank() == 1) own.data<float>()[element] = 1;
      for (int64_t update = 10; update <= 400; update += 10) try {
          check_replicas(group, {{"wide", own, &layout[0]}}, update);
        } catch (const Error&) {
          ++found;
        }
    });
    EXPECT_GT(found, 0) << element;
    EXPECT_LT(found, 2 * 40) << "all of it was compared each time";
  }
}

}  // namespace
}  // namespace temper::parallel
