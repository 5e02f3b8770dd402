#include "weights/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace temper {
namespace {

// Neighbours are on the tensor axis, then on those of experts, shards and replicas.
TEST(Mesh, RanksHaveTheirPlacesFromNeighboursOutwards) {
  const Mesh mesh{.replicate = 2, .shard = 3, .tensor = 4, .expert = 5};
  EXPECT_EQ(mesh.size(), 120);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int tensor = mesh.place(&Mesh::tensor, rank), expert = mesh.place(&Mesh::expert, rank),
              shard = mesh.place(&Mesh::shard, rank), replicate = mesh.place(&Mesh::replicate, rank);
    EXPECT_EQ(tensor + 4 * (expert + 5 * (shard + 3 * replicate)), rank);
    EXPECT_TRUE(tensor < 4 && expert < 5 && shard < 3 && replicate < 2) << rank;
  }
}

// What holds for any list of axes: each has a name, a degree and an order of its own.
TEST(Mesh, AxesAreDistinct) {
  std::set<std::string> names;
  std::set<int> orders;
  for (size_t i = 0; i < kMeshAxes.size(); ++i) {
    names.insert(kMeshAxes[i].name);
    orders.insert(kMeshAxes[i].order);
    EXPECT_EQ(index_of_axis(kMeshAxes[i].name), i);
    Mesh mesh;
    mesh.*kMeshAxes[i].degree = 6;
    EXPECT_EQ(mesh.size(), 6);
    for (const MeshAxis& axis : kMeshAxes)
      EXPECT_EQ(mesh.place(axis.degree, 4), axis.degree == kMeshAxes[i].degree ? 4 : 0) << axis.name;
  }
  EXPECT_EQ(names.size(), kMeshAxes.size());
  EXPECT_EQ(orders.size(), kMeshAxes.size());
  EXPECT_EQ(*orders.rbegin(), static_cast<int>(kMeshAxes.size()) - 1);
}

TEST(Mesh, TextsNameWhatIsDivided) {
  EXPECT_EQ(to_string(Mesh{}), "replicate 1, shard 1");
  EXPECT_EQ(to_string(Mesh{.shard = 2, .tensor = 4}), "replicate 1, shard 2, tensor 4");
  EXPECT_EQ(to_string(Mesh{.replicate = 2, .tensor = 2, .expert = 3, .shard_level = 3}),
            "replicate 2, shard 1, tensor 2, expert 3, shard_level 3");
}

}  // namespace
}  // namespace temper
