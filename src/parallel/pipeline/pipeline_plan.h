#pragma once
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

namespace temper::parallel {

// A schedule, and when its actions are done where transfers are done in the order of the passes, as training
// does them (Waiting::kForAllTransfers).
struct PipelinePlan {
  Schedule schedule;
  Timeline timeline;
};

// For parts of these costs, by whose mean tensors travel. An Error of kind kDefect where the schedule does
// not pass check_schedule().
PipelinePlan plan_pipeline(ScheduleKind kind, const PipelineShape& shape, const PipelineCosts& costs);

}  // namespace temper::parallel
