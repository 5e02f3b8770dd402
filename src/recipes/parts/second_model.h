#pragma once
#include <string>
#include <string_view>

#include "recipes/keys/run_config.h"

namespace temper::recipes {

// Refuses a folder, the value of `key`, that is no model, that reads other tokens than the model which is
// trained, or fewer of them in a row. `what` it is: "a reference"; `advice`: what to give instead. An empty
// folder passes.
void check_second_model(const RunConfig& config, std::string_view key, const std::string& folder,
                        std::string_view what, std::string_view advice);

}  // namespace temper::recipes
