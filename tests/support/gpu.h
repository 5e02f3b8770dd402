#pragma once
#include <string>

namespace temper {

// Why tests on a GPU, or on so many, are skipped; empty where they are there. A missing GPU must be a missing
// resource, not a mistake.
std::string why_no_gpu(int wanted = 1);

}  // namespace temper
