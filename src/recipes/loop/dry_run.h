#pragma once
#include "collectives/group.h"
#include "recipes/keys/run_config.h"
#include "recipes/loop/options.h"

namespace temper::recipes {

// The command train with --dry-run: checks everything that can be checked without training, and prints what
// the run would take of data, disk, memory and time. Writes nothing. `ranks`: a rank that is alone.
void dry_run(const RunConfig& config, const RunOptions& options, collectives::Group& ranks);

}  // namespace temper::recipes
