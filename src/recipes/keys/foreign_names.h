#pragma once
#include <string_view>
#include <vector>

#include "config/schema.h"

namespace temper::recipes {

// What other programs for training call something of ours.
struct ForeignNames {
  std::string_view meant;  // our key, or a whole sentence
  std::vector<std::string_view> names;
};

// For those that come from other programs: their names for the keys of a run, those of the recipes' own keys
// with them. Of the root schema.
void answer_foreign_names(config::Schema& s);

}  // namespace temper::recipes
