#pragma once
#include <string>
#include <vector>

namespace temper::cli {

// Of a command that takes a run's keys: prints `brief` for --help or -h, every key for --help all, and one
// key or group for --help KEY. False when help was not asked for.
bool show_help(const std::vector<std::string>& arguments, const std::string& brief);

}  // namespace temper::cli
