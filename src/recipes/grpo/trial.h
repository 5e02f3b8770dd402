#pragma once
#include <string>

#include "recipes/setup/recipe_inputs.h"

// What a dry run of recipe grpo tries (Recipe::read_rows and what follows it).
namespace temper::recipes {

RowsRead read_prompts(const RunConfig& config, const DataSets& data, int64_t updates, double end);
std::string try_rewards(const RunConfig& config, const DataSets& data);
RolloutTime time_of_rollouts(const BatchInputs& inputs);

}  // namespace temper::recipes
