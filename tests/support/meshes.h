#pragma once
#include <utility>
#include <vector>

#include "weights/mesh.h"

namespace temper {

// The meshes of so many ranks whose degrees are powers of two, with the first axis as what the others leave.
inline std::vector<Mesh> all_meshes(int ranks) {
  std::vector<Mesh> meshes{{}};
  for (size_t i = 1; i < kMeshAxes.size(); ++i) {
    std::vector<Mesh> divided;
    for (Mesh mesh : meshes) {
      const int others = mesh.size();
      for (int degree = 1; others * degree <= ranks; degree *= 2) {
        mesh.*kMeshAxes[i].degree = degree;
        divided.push_back(mesh);
      }
    }
    meshes = std::move(divided);
  }
  for (Mesh& mesh : meshes) mesh.*kMeshAxes.front().degree = ranks / mesh.size();
  return meshes;
}

}  // namespace temper
