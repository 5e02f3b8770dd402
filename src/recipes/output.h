#pragma once
#include <string>

namespace temper::recipes {

// Refuses an output folder that is not there and cannot be made, or that cannot be written to; makes nothing.
void check_output(const std::string& folder);

}  // namespace temper::recipes
