#pragma once
#include <string>
#include <vector>

#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// What the stages of a pipeline have and need, on a line for each: "stage 0  layers 0 to 13, embedding;
// memory about 3.2 GiB".
std::string describe_stages(const std::vector<StageMemory>& stages);
// What is planned for each of them, by region, side by side.
std::string stages_table(const std::vector<StageMemory>& stages);

}  // namespace temper::recipes
