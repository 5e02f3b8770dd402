#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/fields.h"
#include "data/rows/row.h"

namespace temper::data {

// Unused fields of a row, and of its messages, that have a value: "score",
// "messages[].name". What a template reads are the names that stand in it; where these are not known, it
// reads all.
std::vector<std::string> unused_fields(const Json& row, RowFormat format, const RowOptions& options);

}  // namespace temper::data
