#pragma once
#include <string>

#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// The keys to change so that the run fits into `limit` bytes, those that cost the least speed, with what is
// needed then; empty when nothing helps.
std::string what_would_fit(const RunConfig& config, const Setting& setting, int64_t limit);

// Refuses a run that cannot fit however little is computed at once; warns when it probably will not. Both say
// what would fit.
void check_memory(const RunConfig& config, const Setting& setting, const RunMemory& plan, int64_t limit);

}  // namespace temper::recipes
