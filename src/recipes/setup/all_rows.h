#pragma once
#include <functional>
#include <string_view>

#include "recipes/setup/recipe_inputs.h"

namespace temper::recipes {

// All rows of the run's data, some at a time: read by rank 0, and given to all ranks. `name` is the
// collective's.
void for_each_rows(const ObjectiveInputs& inputs, std::string_view name,
                   const std::function<void(const std::vector<data::PackedRow>&)>& use);

}  // namespace temper::recipes
