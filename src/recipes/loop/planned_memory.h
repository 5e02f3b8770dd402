#pragma once
#include "ops/selection.h"
#include "recipes/loop/learners.h"
#include "recipes/loop/options.h"
#include "recipes/plans/rehearsal.h"

namespace temper::recipes {

// The memory that the run will take on its device, before weights are read: a rehearsal (plans/rehearsal.h)
// on the run's mesh, or on the one that a dry run plans for. Rollouts get a KV cache as large as what
// training leaves of the device's limit, the same on all ranks (RunSetup::cache_tokens). An Error where the
// run cannot fit, or where its ranks cannot divide it; a warning where it probably will not fit.
// `preferred`: kernels that are tried first. All ranks call it.
RunMemory plan_memory(RunSetup& setup, const Learners& learners, const RunOptions& options,
                      const ops::Preferences& preferred);

// Prints memory by tag, planned and actual, where the user asked for it.
void explain_memory(const RunSetup& setup, const RunOptions& options, const RunMemory& plan);

// Prints a text that was asked for: a dry run's is its result, on standard output; otherwise it is logged.
void print_answer(const RunOptions& options, const std::string& text);

}  // namespace temper::recipes
