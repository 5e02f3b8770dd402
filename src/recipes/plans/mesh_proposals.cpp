#include "recipes/plans/mesh_proposals.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/scalars.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "recipes/plans/mesh.h"

namespace temper::recipes {
namespace {

constexpr size_t kProposals = 3;

// What belongs to an axis besides its degree follows it.
std::string yaml_of(const Mesh& mesh) {
  std::vector<std::string> keys;
  for (const MeshAxis& axis : kMeshAxes) {
    if (axis.has_own_rows || mesh.*axis.degree > 1)
      keys.push_back(fmt::format("{}: {}", axis.name, mesh.*axis.degree));
    if (axis.degree == &Mesh::shard && mesh.shard_level > 1)
      keys.push_back(fmt::format("shard_level: {}", mesh.shard_level));
  }
  return fmt::format("{{{}}}", join(keys));
}

// A degree that the configuration names, and that the ranks can have.
int named(const std::string& degree, int ranks) {
  const int64_t value = config::parse_integer(degree).value_or(1);
  return value >= 1 && value <= ranks && ranks % value == 0 ? static_cast<int>(value) : 1;
}

// From what costs the least speed to what costs the most: ranks share states, then gradients and matrices,
// then layers are divided, first among few ranks.
std::vector<Mesh> candidates(const ParallelConfig& config, int ranks) {
  std::vector<Mesh> all;
  const auto add = [&](const Mesh& divided) {
    const int left = ranks / divided.size();
    const auto with = [&](int shard, int level) {
      Mesh mesh = divided;
      mesh.replicate = left / shard;
      mesh.shard = shard;
      mesh.shard_level = level;
      all.push_back(mesh);
    };
    with(1, 1);
    if (left > 1) with(left, 1);
    if (left > 2 && left % 2 == 0) with(2, 1);
    if (left * divided.expert * divided.context > 1) with(left, 3);
  };
  Mesh requested;
  for (size_t i = 0; i < kMeshAxes.size(); ++i)
    if (!kMeshAxes[i].has_own_rows)
      requested.*kMeshAxes[i].degree = named(config.degrees[i], ranks / requested.size());
  add(requested);
  for (int more = 2; more <= ranks && ranks % more == 0; more *= 2)
    for (auto axis = kMeshAxes.rbegin(); axis != kMeshAxes.rend(); ++axis) {
      if (axis->has_own_rows || requested.*axis->degree == more) continue;
      Mesh divided;
      divided.*axis->degree = more;
      add(divided);
    }
  return all;
}

bool suits(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config) {
  try {
    check_mesh(mesh, model, config);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string without_memory(const ParallelConfig& config, int ranks) {
  std::vector<std::string> texts;
  for (const Mesh& mesh : candidates(config, ranks))
    if (texts.size() < kProposals) texts.push_back(yaml_of(mesh));
  return join(texts);
}

}  // namespace

std::string proposed_meshes(const RunConfig& config, const Setting& setting, int ranks, int64_t limit) {
  const layers::DecoderConfig model = models::configure(
      setting.model, join_path(config.model.path, "config.json"), models::Purpose::kTraining);
  std::vector<std::string> texts;
  for (const Mesh& mesh : candidates(config.parallel, ranks)) {
    if (texts.size() == kProposals) break;
    if (!suits(mesh, model, config)) continue;
    Setting divided = setting;
    divided.mesh = mesh;
    try {
      const int64_t needed = rehearse(config, divided).total;
      if (needed <= limit)
        texts.push_back(fmt::format("{} (about {} a rank)", yaml_of(mesh), format_bytes(needed)));
    } catch (const Error&) {
      continue;  // something of the run is not for this mesh
    }
  }
  return join(texts);
}

std::string proposed_meshes(const RunConfig& config, int ranks) {
  Setting setting;
  try {
    setting.model = models::config_of_folder(config.model.path);
    setting.facts = detect_hardware(config.device);
  } catch (const Error&) {
    return without_memory(config.parallel, ranks);
  }
  const int64_t limit =
      config.memory_limit_mib > 0 ? config.memory_limit_mib << 20 : pool(setting.facts.device).limit();
  return proposed_meshes(config, setting, ranks, limit);
}

}  // namespace temper::recipes
