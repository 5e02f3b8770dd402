#pragma once
#include <vector>

#include "quantizers/quantizer_plan.h"
#include "weights/layout.h"

// What a rank has of a quantizer whose weight ranks divide.
namespace temper::quantizers {

struct QuantizerPart {
  PlannedQuantizer own;           // values and amax are those that the rank holds
  std::vector<int64_t> elements;  // for each own amax its place in the whole amax; none: the rank has all
  // For each own factor of a column its place among those of the whole weight.
  std::vector<int64_t> columns = {};
};

// `placement` is of the weight; where that is on another stage of a pipeline, the part is the whole. An Error
// "[quantize] …" names a quantizer if elements that share an amax would be on several ranks. One amax for a
// whole matrix is allowed: the ranks take the largest.
QuantizerPart part_of(const PlannedQuantizer& whole, const Placement& placement);

}  // namespace temper::quantizers
