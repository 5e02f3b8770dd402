#pragma once
#include <string>

namespace temper::recipes {

// Refuses an output folder that is not there and cannot be made, or that cannot be written to; and folders of
// the system, home folders and roots of repositories, whose files are not a run's. Makes nothing.
void check_output(const std::string& folder);

// The configuration of a run as its folder keeps it: with a line that says which program wrote it.
void write_config(const std::string& file, const std::string& resolved_yaml);

}  // namespace temper::recipes
