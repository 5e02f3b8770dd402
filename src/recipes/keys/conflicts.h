#pragma once
#include <string>
#include <vector>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Keys whose values differ between the configuration of a folder's run and this one, and that would make the
// continued run another run ("train.optimizer.lr: 1e-05, now 2e-05").
std::vector<std::string> conflicting_keys(const std::string& old_yaml_file, const RunConfig& now);

}  // namespace temper::recipes
