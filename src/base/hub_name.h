#pragma once
#include <string>

namespace temper {

// What to add to "no such file" where `path` looks like a name on the Hugging Face Hub ("Qwen/Qwen3-0.6B")
// rather than a path: the command that downloads it; else empty. `kind`: "model" or "data set".
std::string hub_advice(const std::string& path, const std::string& kind);

}  // namespace temper
