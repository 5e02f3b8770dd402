#pragma once
#include <optional>
#include <string>

#include "base/json/json.h"
#include "tokenizers/splitting/splitter.h"

namespace temper::tokenizers {

// The pre-tokenizers that only cut: Split, Digits, Punctuation, Whitespace, WhitespaceSplit; nothing for
// others.
std::optional<Split> read_split(std::string_view type, const Json& component, const std::string& place);

}  // namespace temper::tokenizers
