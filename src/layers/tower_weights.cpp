#include "layers/tower_weights.h"

namespace temper::layers {
namespace {

// No rank divides any of them.
constexpr const char* kAxes[Shape::kMaxDims] = {"tower_out",  "tower_in",      "tower_frames",
                                                "tower_rows", "tower_columns", "tower_more"};

std::vector<WeightAxis> axes_of(const Shape& shape) { return {kAxes, kAxes + shape.ndim()}; }

}  // namespace

void TowerWeights::vector(const std::string& name, int64_t size, bool zeros) {
  add_vector(name, {{source_scope_ + name, size}}, zeros);
}

void TowerWeights::add_vector(const std::string& name, const std::vector<WeightSource>& sources, bool zeros) {
  int64_t size = 0;
  for (const WeightSource& source : sources) size += source.rows;
  table_.add({.name = scope_ + name,
              .shape = {size},
              .axes = axes_of({size}),
              .sources = sources,
              .decay = false,
              .zeros = zeros});
}

void TowerWeights::linear(const std::string& name, int64_t in, const std::vector<WeightSource>& modules) {
  std::vector<WeightSource> weights, biases;
  int64_t rows = 0;
  for (const WeightSource& module : modules) {
    weights.push_back({source_scope_ + module.name + ".weight", module.rows});
    biases.push_back({source_scope_ + module.name + ".bias", module.rows});
    rows += module.rows;
  }
  const Shape shape{rows, in};
  table_.add({.name = scope_ + name + ".weight", .shape = shape, .axes = axes_of(shape), .sources = weights});
  add_vector(name + ".bias", biases, false);
}

void TowerWeights::tensor(const std::string& name, const Shape& shape, bool transposed) {
  table_.add({.name = scope_ + name,
              .shape = shape,
              .axes = axes_of(shape),
              .sources = {{source_scope_ + name, shape[0]}},
              .transposed = transposed});
}

}  // namespace temper::layers
