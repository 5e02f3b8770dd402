#pragma once
#include <string>

#include "base/json/json.h"
#include "recipes/commands/plan_layouts.h"

namespace temper::recipes {

// For people: what was planned, where figures come from, what became of all layouts, a table of the best, and
// how to use the first of them.
std::string describe(const LayoutPlan& plan);

// For programs. Each figure is {"value": …, "source": "measured" or "computed"}; times are seconds, memory
// and what is sent bytes.
Json to_json(const LayoutPlan& plan);

}  // namespace temper::recipes
