#pragma once
#include <string>

#include "recipes/costs/machine.h"

namespace temper::recipes {

// What temper plan --measure has timed, as JSON for people and programs:
//
//   {"format": "temper times", "version": 1,
//    "machine": {"name": "NVIDIA H200", "hardware": "gpu"}, "dtype": "bfloat16",
//    "memory_bandwidth": 4.26e12, "launch": 8e-06, "step_share": 0.98,
//    "ops": {"linear": {"unit": "flops", "speeds": [[1.1e+11, 5.6e+14], [6.9e+12, 7.1e+14]]}},
//    "links": {"host": {"bytes_per_second": 3.1e+11, "latency": 2e-05, "slowdown": 0.8}}}
//
// Speeds are pairs of an amount and what is done of it in a second, in floating-point operations or bytes;
// latencies are seconds. A link that no two ranks had is left out; the table's is taken for it then.
void write_times(const std::string& path, const Machine& measured);

// An Error that names the file and the key where it is damaged or of another version, or where it is of a
// machine that is neither known by its name nor here.
Machine read_times(const std::string& path);

}  // namespace temper::recipes
