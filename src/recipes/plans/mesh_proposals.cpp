#include "recipes/plans/mesh_proposals.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/scalars.h"
#include "models/folder_config.h"
#include "models/model.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/pipeline_checks.h"

namespace temper::recipes {
namespace {

constexpr size_t kProposals = 3;

// Stages of a pipeline, of as many ranks as the mesh has, with `chunks` parts of the layers each.
struct Division {
  int64_t stages = 1, chunks = 1;
  Mesh mesh = {};

  RunConfig of(RunConfig config) const {
    config.parallel.pipeline = stages;
    config.parallel.pipeline_chunks = chunks;
    return config;
  }
};

// What belongs to an axis besides its degree follows it.
std::string yaml_of(const Division& division) {
  const Mesh& mesh = division.mesh;
  std::vector<std::string> keys;
  if (division.stages > 1) keys.push_back(fmt::format("pipeline: {}", division.stages));
  if (division.chunks > 1) keys.push_back(fmt::format("pipeline_chunks: {}", division.chunks));
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

// The degrees of divided layers that the configuration names, as far as this number of ranks can have them.
Mesh named_mesh(const ParallelConfig& config, int ranks) {
  Mesh mesh;
  for (size_t i = 0; i < kMeshAxes.size(); ++i)
    if (!kMeshAxes[i].has_own_rows) mesh.*kMeshAxes[i].degree = named(config.degrees[i], ranks / mesh.size());
  return mesh;
}

// Ranks that are left share nothing, states, then gradients and matrices.
void add_meshes(const Mesh& divided, int ranks, std::vector<Mesh>& all) {
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
}

// From what costs the least speed to what costs the most: ranks share states, then gradients and matrices,
// then layers are divided, first among few ranks.
std::vector<Mesh> meshes(const ParallelConfig& config, int ranks) {
  std::vector<Mesh> all;
  const Mesh requested = named_mesh(config, ranks);
  add_meshes(requested, ranks, all);
  for (int more = 2; more <= ranks && ranks % more == 0; more *= 2)
    for (auto axis = kMeshAxes.rbegin(); axis != kMeshAxes.rend(); ++axis) {
      if (axis->has_own_rows || requested.*axis->degree == more) continue;
      Mesh divided;
      divided.*axis->degree = more;
      add_meshes(divided, ranks, all);
    }
  return all;
}

// With the stages that the configuration names; then with one part of the layers on each, with fewer stages,
// and with more.
std::vector<Division> candidates(const ParallelConfig& config, int ranks) {
  std::vector<Division> all;
  const auto add = [&](int64_t stages, int64_t chunks, const std::vector<Mesh>& of_stage) {
    for (const Mesh& mesh : of_stage) all.push_back({stages, chunks, mesh});
  };
  const int64_t asked = config.pipeline;
  if (ranks % asked == 0)
    add(asked, asked == 1 ? 1 : config.pipeline_chunks, meshes(config, ranks / static_cast<int>(asked)));
  const auto add_other = [&](int64_t stages) {
    if (ranks % stages != 0) return;
    std::vector<Mesh> of_stage;
    const int size = ranks / static_cast<int>(stages);
    add_meshes(named_mesh(config, size), size, of_stage);
    add(stages, 1, of_stage);
  };
  if (config.pipeline_chunks > 1) add_other(asked);
  for (int64_t fewer = std::min<int64_t>(asked - 1, ranks); fewer >= 1; --fewer) add_other(fewer);
  for (int64_t more = 2; more <= ranks; more *= 2)
    if (more > asked) add_other(more);
  return all;
}

bool suits(const Division& division, const layers::DecoderConfig& model, const RunConfig& given) {
  const RunConfig config = division.of(given);
  if (!too_few_layers(model, config.parallel).empty()) return false;
  try {
    check_mesh(division.mesh, model, config);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string without_memory(const RunConfig& config, const layers::DecoderConfig* model, int ranks) {
  std::vector<std::string> texts;
  for (const Division& division : candidates(config.parallel, ranks))
    if (texts.size() < kProposals && (model == nullptr || suits(division, *model, config)))
      texts.push_back(yaml_of(division));
  return join(texts);
}

}  // namespace

std::string proposed_meshes(const RunConfig& config, const Setting& setting, int ranks, int64_t limit) {
  const layers::DecoderConfig model = models::configure(
      setting.model, join_path(config.model.path, "config.json"), models::Purpose::kTraining);
  std::vector<std::string> texts;
  for (const Division& division : candidates(config.parallel, ranks)) {
    if (texts.size() == kProposals) break;
    if (!suits(division, model, config)) continue;
    Setting divided = setting;
    divided.mesh = division.mesh;
    try {
      const int64_t needed = rehearse(division.of(config), divided).total;
      if (needed <= limit)
        texts.push_back(fmt::format("{} (about {} a rank)", yaml_of(division), format_bytes(needed)));
    } catch (const Error&) {
      continue;  // something of the run is not for this division
    }
  }
  return join(texts);
}

std::string proposed_meshes(const RunConfig& config, int ranks, const layers::DecoderConfig* model) {
  Setting setting;
  try {
    setting.model = models::config_of_folder(config.model.path);
    setting.facts = detect_hardware(config.device);
  } catch (const Error&) {
    return without_memory(config, model, ranks);
  }
  const int64_t limit =
      config.memory_limit_mib > 0 ? config.memory_limit_mib << 20 : pool(setting.facts.device).limit();
  return proposed_meshes(config, setting, ranks, limit);
}

}  // namespace temper::recipes
