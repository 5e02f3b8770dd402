#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "base/json/json.h"

// What a row's fields say it is, and whether they are what they should be. Errors name the field, without
// the row's place.
namespace temper::data {

enum class RowFormat {
  kAuto,              // by the row's fields
  kMessages,          // messages: [{role, content}]
  kShareGpt,          // conversations (or messages): [{from, value}]
  kAlpaca,            // instruction, output; input, system and history if there are any
  kPromptCompletion,  // prompt, completion: texts or messages
  kText,              // text
  kPreference,        // chosen, rejected; prompt, or else it is what both begin with
  kPromptOnly,        // prompt; all other fields are kept, too
  kClassification,    // text, label
  kTokens,            // input_ids; labels, attention_mask and position_ids if there are any
};
constexpr size_t kNumFormats = 10;
std::string_view name_of(RowFormat format);  // "prompt_completion"

// Our names of fields that a file has under other names.
using Columns = std::map<std::string, std::string>;
// The names that may stand on the left of Columns; role and content are those of a message.
inline constexpr std::array<std::string_view, 20> kColumnNames = {
    "messages",  "prompt",   "completion",     "text",
    "chosen",    "rejected", "label",          "instruction",
    "input",     "output",   "system",         "history",
    "tools",     "role",     "content",        "chat_template_kwargs",
    "input_ids", "labels",   "attention_mask", "position_ids"};

// The row with our names. A named field that is not there is an Error.
Json rename_columns(const Json& row, const Columns& columns);  // row is an object

// By the fields that are there and not null; all others are left alone. None or more than one format is an
// Error that lists the row's fields.
RowFormat format_of(const Json& row);

// A non-empty list of objects with a role and a content (a string; it may be missing if there are
// tool_calls).
const Json::Array& check_messages(const Json& messages, const std::string& field);

// An Error for fields that hold pictures, films or sounds, which no model here reads.
void refuse_media(const Json& row);

const std::string& check_string(const Json& value, const std::string& field);

// The field, or null when it is absent or null; in the second form its absence is an Error.
const Json* field_of(const Json& row, std::string_view name);
const Json& required_field(const Json& row, std::string_view name);
std::string fields_of(const Json& row);  // "id, messages, score (null)"

// A NUL character in any text of the row is an Error: no text of people has one, and most tools drop what
// stands behind it.
void check_characters(const Json& value, const std::string& place);

// A row's texts that tokens are made of have at most this many bytes, or it is an Error: a row is made tokens
// at once, which takes some fifty times its bytes.
inline constexpr size_t kMostTextBytes = size_t{64} << 20;
void check_size(const Json& row);

// Roles that templates know are trusted to it; of others the content must show up in the template's text.
bool is_known_role(std::string_view role);

}  // namespace temper::data
