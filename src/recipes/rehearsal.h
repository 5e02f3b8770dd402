#pragma once
#include "base/json.h"
#include "device/memory.h"
#include "ops/selection.h"
#include "recipes/run_config.h"

namespace temper::recipes {

// What a plan depends on besides the configuration.
struct Setting {
  Json model;  // its config.json
  HardwareFacts facts;
  ops::Preferences preferred = {};  // kernels to try first where the configuration says nothing
};

// Goes through a run's first updates and an evaluation on a device that only counts, with the model, adapters,
// kernels, objective and trainer that the run will have and rows as long as they can be: what is in use there
// at most is what the run will have in use. No weights are read, nothing is computed. An Error where the run
// could not be built.
MemoryPlan rehearse(const RunConfig& config, const Setting& setting);

}  // namespace temper::recipes
