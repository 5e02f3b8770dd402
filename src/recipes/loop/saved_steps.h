#pragma once
#include <string>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// The newest checkpoint in each folder of a run, whichever process wrote it, one line for the model or for
// each adapter: "Step 40 is saved in runs/a: run the same command to resume from it".
std::string describe_saved_steps(const RunConfig& config);

}  // namespace temper::recipes
