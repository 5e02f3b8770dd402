#pragma once
#include "recipes/costs/machine.h"
#include "recipes/plans/layouts.h"
#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// What an update of a run costs in one layout.
struct LayoutCost {
  RunLayout layout;
  int64_t memory = 0;  // bytes, of the rank that needs most
  double seconds = 0;  // of an update
  double bubble = 0;   // of these, the share in which the stages of a pipeline wait for each other
  double waiting = 0;  // the share in which the rank's device waits for collectives
  double to_host = 0, to_network = 0;  // bytes that leave a rank in an update
  Source source = Source::kComputed;   // of the seconds
};

// All ranks of a run are of one machine's kind, this many of them on each host.
struct PlannedMachine {
  Machine machine;
  int ranks_of_host = 8;
};

// Rehearses the first rank of the stages that differ (the first, the last and the largest between them).
// What a rank is asked for becomes time (rank_clock.h); of a pipeline the passes are put in its schedule
// (parallel/pipeline/timeline.h). `setting` says all but the layout.
LayoutCost cost_of(const RunConfig& config, const Setting& setting, const PlannedMachine& machine,
                   const RunLayout& layout);

}  // namespace temper::recipes
