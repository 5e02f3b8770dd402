#pragma once
#include <string_view>

#include "config/node.h"

namespace temper::config {

// The first and only document of `text`; an empty one is kNull. Errors name `where` and the line. Beyond
// YAML's own rules these are errors: duplicate keys, keys that are not text, merge keys (<<), tags, several
// documents, and aliases inside their own anchor.
Node parse_yaml(std::string_view text, std::string_view where);

// A value of the command line: text inside [] {} "" or '' is YAML, null and ~ are null, everything else is
// taken as it stands.
Node parse_flag_value(std::string_view text);

}  // namespace temper::config
