#pragma once
#include <string>
#include <vector>

#include "base/json/json.h"
#include "data/chat/fields.h"

namespace temper::data {

// What a row is trained on, whatever its format: a conversation, or a plain text.
struct Content {
  bool chat = false;
  Json::Array messages;
  size_t first_turn = 0;    // messages before it are a prompt
  std::string text;         // where chat is false
  size_t target_begin = 0;  // bytes of the prompt
};

// Names of the classes of a classification, by number.
using Labels = std::vector<std::string>;

// One content; two of a preference, chosen before rejected. `format` is what format_of says, or the user.
// Instructions and classifications become conversations when `has_template`, else plain texts with a blank
// line between prompt and answer. A conversation begins with the row's field `system`, if it has one. Errors
// name the field.
std::vector<Content> read_content(const Json& row, RowFormat format, bool has_template, const Labels& labels);

// The fields of a row that has a prompt alone, without it: what a reward is computed from.
Json beside_prompt(const Json& row);

}  // namespace temper::data
