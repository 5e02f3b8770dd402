#pragma once
#include <string>

#include "recipes/learner/update_schedule.h"
#include "recipes/plans/rehearsal.h"

// What is known of a learner before anything is trained: for plans, and for --dry-run.
namespace temper::recipes {

// A few rows; none where they cannot be read, which is reported when training reads them.
Sample sample_rows(const LearnerInputs& inputs);

// Bytes that it keeps on disk at most; `between`: with the checkpoints before the last one.
int64_t plan_disk(const LearnerInputs& inputs, const UpdateSchedule& schedule, bool between);

struct LearnerCheck {
  data::Batch batch;                    // of the first update
  RowsRead read;                        // as the run will read them
  int64_t step = 0;                     // that the folder's run has reached
  std::string trained = "all weights";  // of an adapter: "42 adapted modules, 0 tensors trained in full"
};
// Looks at the folder, reads the rows, and makes the adapter's plan. Errors: what would stop the run.
LearnerCheck check_learner(const LearnerInputs& inputs, const UpdateSchedule& schedule);

}  // namespace temper::recipes
