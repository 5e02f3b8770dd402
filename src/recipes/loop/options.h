#pragma once
#include <cstdint>

#include <optional>

#include "recipes/keys/parallel_config.h"
#include "weights/mesh.h"

namespace temper::recipes {

// Ranks that a dry run plans for.
struct PlannedDivision {
  Mesh mesh;  // of each stage
  ParallelConfig keys;
};

// The flags of the command train that are not keys of the configuration.
struct RunOptions {
  bool dry_run = false;         // check everything, train nothing
  bool explain_memory = false;  // print the table by tag, planned and actual
  bool verbose = false;         // print why each kernel was chosen
  // Of a dry run that plans for several ranks, of which it computes as one; nothing: for this one.
  std::optional<PlannedDivision> planned = {};
  int64_t profile_steps = 0;  // trace this many steps after two for warm-up; 0: none
};

}  // namespace temper::recipes
