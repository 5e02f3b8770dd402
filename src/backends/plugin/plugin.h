#pragma once
#include <string>
#include <vector>

// Shared libraries that bring kernels and hardware (include/temper/plugin.h).
namespace temper::backends {

// Loads plug-ins once each, in order; a folder means all its *.so files, sorted. A file that is missing, is
// no plug-in, was made for another ABI, or fails to register is an error with its path.
void load_plugins(const std::vector<std::string>& paths);

// The paths in TEMPER_PLUGIN_PATH, separated by ':'.
std::vector<std::string> plugin_paths_from_environment();

}  // namespace temper::backends
