#include "recipes/plans/layouts.h"

#include <array>
#include <functional>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "config/scalars.h"
#include "recipes/plans/mesh.h"

namespace temper::recipes {
namespace {

std::vector<int> divisors_of(int number) {
  std::vector<int> small, large;
  for (int each = 1; each <= number / each; ++each) {
    if (number % each != 0) continue;
    small.push_back(each);
    if (each != number / each) large.push_back(number / each);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// Of an axis: what the configuration names, or all that the ranks can have.
std::vector<int> degrees_of(const RunConfig& config, size_t axis, int left) {
  const int64_t named = config::parse_integer(config.parallel.degrees[axis]).value_or(1);
  if (named <= 1) return divisors_of(left);
  if (left % named != 0) return {};
  return {static_cast<int>(named)};
}

// All divisions of `left` ranks between the axes from `axis` on.
void divide(const RunConfig& config, size_t axis, int left, Mesh& mesh,
            const std::function<void(const Mesh&)>& add) {
  if (axis == kMeshAxes.size()) {
    if (left == 1) add(mesh);
    return;
  }
  for (const int degree : degrees_of(config, axis, left)) {
    mesh.*kMeshAxes[axis].degree = degree;
    divide(config, axis + 1, left / degree, mesh, add);
  }
}

std::vector<int> stages_of(const RunConfig& config, int ranks) {
  const int64_t named = config.parallel.pipeline;
  if (named == 1) return divisors_of(ranks);
  return ranks % named == 0 ? std::vector{static_cast<int>(named)} : std::vector<int>();
}

std::vector<int> chunks_of(const RunConfig& config, int stages) {
  if (config.parallel.pipeline_chunks > 1) return {static_cast<int>(config.parallel.pipeline_chunks)};
  return stages == 1 ? std::vector{1} : std::vector{1, 2, 4};
}

std::vector<int> levels_of(const RunConfig& config, const Mesh& mesh) {
  if (mesh.shard * mesh.context * mesh.expert == 1) return {1};
  if (config.parallel.shard_level > 1) return {static_cast<int>(config.parallel.shard_level)};
  return {1, 2, 3};
}

std::vector<ContextMethod> methods_of(const RunConfig& config, const Mesh& mesh) {
  if (mesh.context == 1) return {ContextMethod::kAuto};
  if (config.parallel.context_heads) return {ContextMethod::kBoth};
  if (config.parallel.context_method != ContextMethod::kAuto) return {config.parallel.context_method};
  if (divisors_of(mesh.context).size() == 2) return {ContextMethod::kHeads, ContextMethod::kKeys};
  return {ContextMethod::kHeads, ContextMethod::kKeys, ContextMethod::kBoth};
}

// Whether the program takes a layout. What the model says of it depends on some of its numbers alone, and is
// asked once for each.
class Acceptance {
 public:
  Acceptance(const layers::DecoderConfig& model, const RunConfig& config) : model_(model), config_(config) {}

  bool accepts(const RunLayout& layout) {
    const RunConfig config = with_layout(config_, layout);
    const Mesh& mesh = layout.mesh;
    if (!is_taken([&] { mesh_of(config, layout.ranks()); })) return false;
    const auto [known, is_new] = known_.try_emplace(
        {mesh.tensor, mesh.expert, mesh.context, mesh.context_method, layout.pipeline, layout.chunks}, false);
    if (is_new) known->second = is_taken([&] { check_mesh(mesh, model_, config); });
    return known->second;
  }
  const std::string& why_refused() const { return why_; }  // the first one

 private:
  template <class F>
  bool is_taken(const F& check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      if (why_.empty()) why_ = error.what();
      return false;
    }
  }

  const layers::DecoderConfig& model_;
  const RunConfig& config_;
  std::string why_;
  std::map<std::tuple<int, int, int, ContextMethod, int, int>, bool> known_;
};

}  // namespace

std::string to_string(const RunLayout& layout) {
  const Mesh& mesh = layout.mesh;
  std::vector<std::string> parts;
  for (const MeshAxis& axis : kMeshAxes) {
    if (mesh.*axis.degree > 1) parts.push_back(fmt::format("{} {}", axis.name, mesh.*axis.degree));
    if (axis.degree == &Mesh::context && mesh.context > 1)
      parts.back() += fmt::format(" {}{}", name_of(mesh.context_method),
                                  mesh.context_heads > 0 ? fmt::format(" of {}", mesh.context_heads) : "");
  }
  if (mesh.shard_level > 1) parts.push_back(fmt::format("level {}", mesh.shard_level));
  if (layout.pipeline > 1)
    parts.push_back(layout.chunks == 1 ? fmt::format("pipeline {}", layout.pipeline)
                                       : fmt::format("pipeline {} x {}", layout.pipeline, layout.chunks));
  return parts.empty() ? "one rank" : join(parts);
}

std::string flags_of(const RunLayout& layout) {
  std::string flags;
  const auto add = [&](std::string_view key, const auto& value) {
    flags += fmt::format("{}--parallel.{} {}", flags.empty() ? "" : " ", key, value);
  };
  for (const MeshAxis& axis : kMeshAxes)
    if (layout.mesh.*axis.degree > 1) add(axis.name, layout.mesh.*axis.degree);
  if (layout.mesh.context > 1) add("context_method", name_of(layout.mesh.context_method));
  if (layout.mesh.context_heads > 0) add("context_heads", layout.mesh.context_heads);
  if (layout.mesh.shard_level > 1) add("shard_level", layout.mesh.shard_level);
  if (layout.pipeline > 1) add("pipeline", layout.pipeline);
  if (layout.chunks > 1) add("pipeline_chunks", layout.chunks);
  return flags;
}

RunConfig with_layout(RunConfig config, const RunLayout& layout) {
  for (size_t i = 0; i < kMeshAxes.size(); ++i)
    config.parallel.degrees[i] = std::to_string(layout.mesh.*kMeshAxes[i].degree);
  config.parallel.pipeline = layout.pipeline;
  config.parallel.pipeline_chunks = layout.chunks;
  config.parallel.pipeline_schedule = PipelineSchedule::kAuto;
  config.parallel.context_method = layout.mesh.context_method;
  config.parallel.context_heads.reset();
  if (layout.mesh.context_heads > 0) config.parallel.context_heads = layout.mesh.context_heads;
  config.parallel.shard_level = layout.mesh.shard_level;
  return config;
}

RunLayouts layouts_of(int ranks, const layers::DecoderConfig& model, const RunConfig& config, int64_t rows) {
  RunLayouts found;
  Acceptance acceptance(model, config);
  const auto add = [&](const RunLayout& layout) {
    if (!acceptance.accepts(layout))
      ++found.refused;
    else if (layout.mesh.row_ranks() > rows)
      ++found.idle;
    else
      found.possible.push_back(layout);
  };
  for (const int pipeline : stages_of(config, ranks))
    for (const int chunks : chunks_of(config, pipeline)) {
      Mesh mesh;
      mesh.sequence = config.parallel.sequence.value_or(true);
      divide(config, 0, ranks / pipeline, mesh, [&](const Mesh& divided) {
        for (const ContextMethod method : methods_of(config, divided))
          for (const int level : levels_of(config, divided)) {
            RunLayout layout{divided, pipeline, chunks};
            layout.mesh.context_method = method;
            if (divided.context > 1)
              layout.mesh.context_heads = static_cast<int>(config.parallel.context_heads.value_or(0));
            layout.mesh.shard_level = level;
            add(layout);
          }
      });
    }
  found.why_refused = acceptance.why_refused();
  return found;
}

}  // namespace temper::recipes
