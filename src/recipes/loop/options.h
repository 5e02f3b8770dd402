#pragma once
#include <cstdint>

#include "weights/layout.h"

namespace temper::recipes {

// The flags of the command train that are not keys of the configuration.
struct RunOptions {
  bool dry_run = false;         // check everything, train nothing
  bool explain_memory = false;  // print the table by tag, planned and actual
  bool verbose = false;         // print why each kernel was chosen
  Mesh planned = {};            // of a dry run: the ranks that it plans for, of which it computes as one
  int64_t profile_steps = 0;    // trace this many steps after two for warm-up; 0: none
};

}  // namespace temper::recipes
