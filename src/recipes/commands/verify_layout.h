#pragma once
#include <string>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

struct VerifyOptions {
  int ranks = 2;
  int64_t updates = 3;
  DType dtype = DType::kF32;  // or bfloat16, whose rounding allows larger differences
};

// The command verify-layout: trains a small copy of the run's own model, of two layers (of each kind one) and
// a small vocabulary, or the run's adapters of that copy, by the run's recipe, on the CPU: on one rank, and
// on several ranks, which divide the work as `parallel` says and are threads of this process. Losses, every
// gradient before clipping, their norms and weights after each update are compared; quantizers are left out,
// and the table says so. Returns a table of the largest differences; an Error of kind kDefect where one is
// larger than rounding explains.
std::string verify_layout(const RunConfig& config, const VerifyOptions& options);

}  // namespace temper::recipes
