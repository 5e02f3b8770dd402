#pragma once
#include <string>

#include "recipes/run_config.h"

namespace temper::recipes {

// The command verify-layout: trains a small copy of the run's own model, of two layers (of each kind one) and
// a small vocabulary, in float32 on the CPU: on one rank, and as so many ranks divide the work by `parallel`,
// which are threads of this process. Losses, every gradient before clipping and weights of three updates are
// compared. Returns a table of the largest differences; an Error of kind kDefect where one is larger than
// rounding explains.
std::string verify_layout(const RunConfig& config, int ranks);

}  // namespace temper::recipes
