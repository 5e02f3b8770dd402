#pragma once
#include "recipes/plans/rehearsal.h"
#include "recipes/plans/rehearsed_rows.h"

namespace temper::recipes {

// An update of all ranks and learners.
struct UpdateSize {
  double rows = 0, tokens = 0;
  double flops = 0;  // of the model's matrix multiplications; what is computed again is not counted
};
UpdateSize size_of_update(const RunConfig& config, const Setting& setting);

// Passes of an update that plans of time rehearse at most (Setting::most_passes).
constexpr int64_t kPlannedPasses = 2;
// Of a rank with rows of its own, of all learners.
PassCounts passes_of_update(const RunConfig& config, const Setting& setting, int row_ranks);

}  // namespace temper::recipes
