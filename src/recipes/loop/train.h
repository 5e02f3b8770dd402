#pragma once
#include <string>

#include "collectives/local/local.h"
#include "recipes/keys/run_config.h"
#include "recipes/loop/options.h"

namespace temper::recipes {

// The checks that need the configuration alone: an Error before anything is started or loaded.
void check_run(const RunConfig& config);

// The dry run of a run on this number of ranks, computed on one.
void plan_run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
              int ranks);

// The command train: the run that the configuration describes, on these ranks. All of them call it.
void train(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
           collectives::Group& ranks = collectives::alone());

}  // namespace temper::recipes
