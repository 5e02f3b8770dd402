#pragma once
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

namespace temper::parallel {

// A schedule, and when its actions are done where passes wait so for transfers.
struct PipelinePlan {
  Schedule schedule;
  Timeline timeline;
};

// On devices apart from the CPU transfers overlap with passes (stage_transfers.h).
constexpr Waiting waiting_of(bool apart) { return apart ? Waiting::kForInputs : Waiting::kForAllTransfers; }

// For parts of these costs, by whose mean tensors travel. An Error of kind kDefect where the schedule does
// not pass check_schedule().
PipelinePlan plan_pipeline(ScheduleKind kind, const PipelineShape& shape, const PipelineCosts& costs,
                           Waiting waiting);

}  // namespace temper::parallel
