#pragma once
#include <string>

namespace temper {

// Why tests on a GPU are skipped, empty where there is one. A missing GPU must be a missing resource, not a
// mistake.
std::string why_no_gpu();

}  // namespace temper
