#include "parallel/layout_file.h"

#include "base/text.h"
#include "parallel/model_parts.h"

namespace temper::parallel {
namespace {

Json range(int64_t first, int64_t count) { return Json::Array{first, count}; }

// Neighbours are one.
Json rows_of(const std::vector<Slice>& slices) {
  Json::Array ranges;
  for (size_t i = 0; i < slices.size();) {
    const int64_t first = slices[i].whole;
    int64_t end = first;
    for (; i < slices.size() && slices[i].whole == end; ++i) end += slices[i].count;
    ranges.push_back(range(first, end - first));
  }
  return ranges;
}

Json parts_of(const Placement& placement) {
  Json::Array parts;
  for (int part = 0; part < placement.parts(); ++part) {
    const Placement::Part held = placement.held(part);
    parts.push_back(Json::Object{{"rank", placement.rank_of(part)},
                                 {"rows", rows_of(held.rows)},
                                 {"columns", range(held.columns.whole, held.columns.count)}});
  }
  return parts;
}

// What its ranks hold together has one gradient: the sum over the axes that repeat it or have other rows.
std::string summed_over(const Placement& placement, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : kMeshAxes)
    if (mesh.*axis.degree > 1 && !placement.is_cut_on(axis)) axes.emplace_back(axis.name);
  return join(axes);
}

// What belongs to an axis besides its degree follows it.
Json::Object mesh_json(const Mesh& mesh) {
  Json::Object json;
  for (const MeshAxis& axis : kMeshAxes) {
    json.emplace_back(axis.name, mesh.*axis.degree);
    if (axis.degree == &Mesh::shard) json.emplace_back("shard_level", mesh.shard_level);
    if (axis.degree == &Mesh::context && mesh.context > 1)
      json.emplace_back("context_method", name_of(mesh.context_method));
    if (axis.degree == &Mesh::context && mesh.context_heads > 0)
      json.emplace_back("context_heads", mesh.context_heads);
    if (axis.degree == &Mesh::tensor) json.emplace_back("sequence", mesh.sequence);
  }
  return json;
}

// Ranks that follow one another are of one stage.
Json::Array stages_json(const layers::ModelStages& stages, const Mesh& mesh) {
  Json::Array list;
  for (int stage = 0; stage < stages.count(); ++stage) {
    Json::Array layers;
    for (const LayerRange& part : layers_of_stage(stages, stage))
      layers.push_back(range(part.first, part.count()));
    list.push_back(Json::Object{{"ranks", range(int64_t{stage} * mesh.size(), mesh.size())},
                                {"layers", std::move(layers)},
                                {"embedding", stage == 0},
                                {"head", stage + 1 == stages.count()}});
  }
  return list;
}

Json::Array shape_of(const Shape& shape) {
  Json::Array dims;
  for (int i = 0; i < shape.ndim(); ++i) dims.push_back(shape[i]);
  return dims;
}

}  // namespace

Json layout_json(const layers::ParameterStore& parameters, const layers::ModelStages& stages) {
  const Layout& layout = parameters.layout();
  const Mesh& mesh = layout.mesh();
  const std::vector<int>& copies = layout.stages().copies;
  Json::Array list;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const WeightSpec& spec = parameters.spec(i);
    const Placement held = layout[i].is_flat() ? layout[i].unsharded() : layout[i];
    Json::Array axes;
    for (const WeightAxis& axis : spec.axes) axes.emplace_back(axis.name);
    Json::Object parameter{{"name", spec.name},
                           {"shape", shape_of(held.whole())},
                           {"axes", std::move(axes)},
                           {"parts", parts_of(held)},
                           {"gathered before its layer", layout[i].is_flat()},
                           {"ranks that divide its state", spec.buffer ? 1 : layout.shards(i)},
                           {"gradient summed over", summed_over(held, mesh)}};
    if (!copies.empty() && copies[i] >= 0) parameter.emplace_back("stage that has a copy", copies[i]);
    list.push_back(std::move(parameter));
  }
  Json::Object all{{"ranks", layout.ranks()}, {"mesh", mesh_json(mesh)}};
  if (stages.count() > 1) all.emplace_back("stages", stages_json(stages, mesh));
  all.emplace_back("parameters", std::move(list));
  return all;
}

}  // namespace temper::parallel
