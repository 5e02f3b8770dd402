#pragma once
#include <string>
#include <vector>

#include "config/schema.h"

namespace temper::config {

// The keys of a group.
std::vector<std::string> names_of(const Schema& schema);

// The dotted paths of all keys in order; keys of a list's elements as "data.sources[].path".
std::vector<std::string> all_paths(const Schema& schema);

// The dotted path of the key that older versions had at `path`; "" where there is none.
std::string former_key(const Schema& root, const std::string& path);

// Throws "[where] unknown key 'path'" with what the schema answers to that name, the nearest key ("did you
// mean '…'?"), or the keys that are valid there.
[[noreturn]] void fail_unknown(const Schema& root, const std::string& path, const std::string& where);

}  // namespace temper::config
