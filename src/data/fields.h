#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

// What a row's fields say it is, and whether they are what they should be. Errors name the field, without
// the row's place.
namespace temper::data {

enum class RowFormat { kMessages, kPromptCompletion, kText };
std::string_view name_of(RowFormat format);

// By the fields that are there and not null: messages, prompt and completion, or text. All other fields are
// left alone. None of them or more than one is an Error that lists the row's fields.
RowFormat format_of(const Json& row);

// A non-empty list of objects with a role and a content (a string; it may be missing beside tool_calls).
const Json::Array& check_messages(const Json& messages, const std::string& field);

const std::string& check_string(const Json& value, const std::string& field);

// The field, or null when it is absent or null.
const Json* field_of(const Json& row, std::string_view name);

// Roles that templates know are trusted to it; of others the content must show up in the template's text.
bool is_known_role(std::string_view role);

}  // namespace temper::data
