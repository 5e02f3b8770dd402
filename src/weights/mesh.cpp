#include "weights/mesh.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace temper {

std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::kHeads:
      return "ulysses";
    case ContextMethod::kKeys:
      return "ring";
    case ContextMethod::kBoth:
      return "usp";
    case ContextMethod::kAuto:
      return "auto";
  }
  return "";
}

int Mesh::size() const {
  int ranks = 1;
  for (const MeshAxis& axis : kMeshAxes) ranks *= this->*axis.degree;
  return ranks;
}

int Mesh::place(MeshDegree degree, int rank) const {
  const auto own = std::find_if(kMeshAxes.begin(), kMeshAxes.end(),
                                [&](const MeshAxis& axis) { return axis.degree == degree; });
  invariant(own != kMeshAxes.end(), "a place is on an axis of the mesh");
  int stride = 1;  // between ranks that differ on this axis alone
  for (const MeshAxis& axis : kMeshAxes)
    if (axis.order < own->order) stride *= this->*axis.degree;
  return rank / stride % (this->*degree);
}

int Mesh::first_rank_of_expert(int place) const {
  const int own = place % expert, shared = place / expert;
  return tensor * (shared % context + context * (own + expert * (shared / context)));
}

size_t index_of_axis(std::string_view name) {
  const auto found = std::find_if(kMeshAxes.begin(), kMeshAxes.end(),
                                  [&](const MeshAxis& axis) { return axis.name == name; });
  invariant(found != kMeshAxes.end(), fmt::format("the mesh has no axis {}", name));
  return static_cast<size_t>(found - kMeshAxes.begin());
}

std::string divisors_text(int64_t units) {
  constexpr int64_t kMost = 64;
  std::vector<std::string> all;
  for (int64_t ranks = 1; ranks <= std::min(units, kMost); ++ranks)
    if (units % ranks == 0) all.push_back(std::to_string(ranks));
  const std::string last = all.back();
  all.pop_back();
  return all.empty() ? last : join(all) + " or " + last;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : kMeshAxes)
    if (axis.has_own_rows || mesh.*axis.degree > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.name, mesh.*axis.degree);
  if (mesh.context > 1 && mesh.context_method != ContextMethod::kAuto)
    text += fmt::format(", context_method {}", name_of(mesh.context_method));
  if (mesh.context_heads > 0) text += fmt::format(", context_heads {}", mesh.context_heads);
  if (mesh.shard_level > 1) text += fmt::format(", shard_level {}", mesh.shard_level);
  return text;
}

}  // namespace temper
