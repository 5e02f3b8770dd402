#pragma once
#include <string>

namespace temper {

// Why tests on a GPU, or on `wanted` GPUs, are skipped; empty if they exist. A missing GPU must be a missing
// resource, not a mistake.
std::string why_no_gpu(int wanted = 1);

}  // namespace temper
