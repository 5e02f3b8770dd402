#pragma once
#include <string>

#include "ops/selection.h"
#include "recipes/keys/run_config.h"

namespace temper::recipes {

// The kernels that a run would have on its device, or on other hardware by name; what would end the run when
// it chooses them is the same Error here.
struct KernelsOfRun {
  ops::BoundOps ops;
  HardwareFacts facts;
};
KernelsOfRun bind_kernels_of_run(const RunConfig& config, const std::string& hardware = "");

}  // namespace temper::recipes
