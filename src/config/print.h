#pragma once
#include <string>

#include "config/schema.h"

namespace temper::config {

// The present values as YAML that loads back equal. Keys that the last load() found written carry the comment
// "# written".
std::string dump(const Schema& schema);

// Every key as a flag, with what it expects, its default and its description, for --help.
std::string help(const Schema& schema);

}  // namespace temper::config
