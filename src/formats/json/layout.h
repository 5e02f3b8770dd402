#pragma once
#include <string_view>

#include "formats/json/scanner.h"

namespace temper::formats {

// Whether a text is one JSON document (or several objects, each over many lines) rather than one value a
// line.
bool is_document(std::string_view text);

// Members that rows have and what holds rows has not: "text", with its quotes.
bool is_of_a_row(std::string_view quoted_name);

// What stands at a '[': objects, of which those with a role or a from are the messages of one conversation.
enum class List { kNone, kObjects, kMessages };
List list_at(std::string_view text, size_t at);

}  // namespace temper::formats
