#pragma once
#include <string>

#include "config/schema.h"

namespace temper::config {

// The present values as YAML that loads back equal. Keys that the last load() found written carry the comment
// "# written".
std::string dump(const Schema& schema);

// Every key as a flag, with its description, what it expects and its default; rare groups last.
std::string help(const Schema& schema);

// The same of one key or group by its dotted path, or of all keys with that last name; an Error names the
// nearest.
std::string help_of(const Schema& schema, std::string key);

}  // namespace temper::config
