#pragma once
#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace temper::parallel {

// What a model costs, in any one unit: floating-point operations or seconds of a pass, or bytes.
struct LayerCosts {
  std::vector<double> layers;  // in order; none is negative
  double embedding = 0;        // what the first part has in addition
  double head = 0;             // the last one: the final norm, the head and the loss
};

// Layers [first, last) of a model.
struct LayerRange {
  int first = 0, last = 0;

  int count() const { return last - first; }
  bool operator==(const LayerRange&) const = default;
};

// The layers of each part of a pipeline (PipelineShape), in order: every layer is in one part, every part has
// at least one. No other division has a smaller largest cost of a part, and of those that have the same one
// none has a smaller sum of squares of the costs, so that the other parts are about equal, too. Of equals
// the one whose later parts have fewer layers.
//
// An Error where there are more parts than layers, which says how many fit.
std::vector<LayerRange> divide_layers(const LayerCosts& costs, int stages, int chunks);

}  // namespace temper::parallel
