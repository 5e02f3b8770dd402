#pragma once
#include <cstdint>
#include <string>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// What the configuration alone says: an Error for keys that cannot be followed.
void check_exchange(const RunConfig& config);

// Of what memory the values take that travel, in a sentence; empty where none do. Of the run's device, where
// `chunk_on_device` says so, it is part of the plan.
std::string describe_chunk(const RunConfig& config);
int64_t chunk_on_device(const RunConfig& config);  // bytes; 0: it is the CPU's, or there is none

}  // namespace temper::recipes
