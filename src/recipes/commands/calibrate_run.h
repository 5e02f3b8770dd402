#pragma once
#include <string>

#include "collectives/local/local.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// The command quantize: finds every amax of the run's model, over its data where inputs are calibrated, and
// trains nothing. They are kept in OUTPUT/calibration, and the configuration in OUTPUT: `export_run` writes
// the model with them, and a run in the folder begins with them. All ranks call it; of one alone `parallel`
// does not count.
void calibrate_run(RunConfig config, const std::string& resolved_yaml,
                   collectives::Group& ranks = collectives::alone());

}  // namespace temper::recipes
