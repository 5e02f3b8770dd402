#include "data/fields.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace temper::data {
namespace {

constexpr std::array<std::string_view, 6> kKnownRoles = {"system",    "developer", "user",
                                                         "assistant", "tool",      "function"};

std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.as_object())
    names.push_back(value.is_null() ? name + " (null)" : name);
  return names.empty() ? "none" : join(names);
}

void check_message(const Json& message, const std::string& place) {
  if (!message.is_object()) fail("{} must be an object, found {}", place, message.kind_name());
  const Json* role = field_of(message, "role");
  if (!role) fail("{}.role is missing", place);
  if (check_string(*role, place + ".role").empty()) fail("{}.role is empty", place);
  const Json* calls = field_of(message, "tool_calls");
  if (calls && !calls->is_array())
    fail("{}.tool_calls must be an array, found {}", place, calls->kind_name());
  const Json* content = field_of(message, "content");
  if (content) check_string(*content, place + ".content");
  if (!content && (!calls || calls->as_array().empty()))
    fail("{}.content is missing, expected a string (or tool_calls)", place);
}

}  // namespace

std::string_view name_of(RowFormat format) {
  switch (format) {
    case RowFormat::kMessages:
      return "messages";
    case RowFormat::kPromptCompletion:
      return "prompt/completion";
    case RowFormat::kText:
      return "text";
  }
  return "";
}

const Json* field_of(const Json& row, std::string_view name) {
  const Json* field = row.find(name);
  return field && !field->is_null() ? field : nullptr;
}

bool is_known_role(std::string_view role) {
  return std::find(kKnownRoles.begin(), kKnownRoles.end(), role) != kKnownRoles.end();
}

const std::string& check_string(const Json& value, const std::string& field) {
  if (!value.is_string()) fail("{} must be a string, found {}", field, value.kind_name());
  return value.as_string();
}

RowFormat format_of(const Json& row) {
  if (!row.is_object()) fail("a row must be an object, found {}", row.kind_name());
  const bool messages = field_of(row, "messages"), text = field_of(row, "text");
  const bool prompt = field_of(row, "prompt"), completion = field_of(row, "completion");
  const int formats = messages + text + (prompt || completion);
  constexpr std::string_view kExpected = "expected one of: messages; prompt and completion; text";
  if (formats > 1)
    fail("a row has the fields of more than one format (fields: {}); {}", fields_of(row), kExpected);
  if (formats == 0) fail("a row has no text to train on (fields: {}); {}", fields_of(row), kExpected);
  if (messages) return RowFormat::kMessages;
  if (text) return RowFormat::kText;
  if (!prompt || !completion)
    fail("{} is missing beside {} (fields: {}); {}", prompt ? "completion" : "prompt",
         prompt ? "prompt" : "completion", fields_of(row), kExpected);
  return RowFormat::kPromptCompletion;
}

const Json::Array& check_messages(const Json& messages, const std::string& field) {
  if (!messages.is_array()) fail("{} must be an array, found {}", field, messages.kind_name());
  const Json::Array& list = messages.as_array();
  if (list.empty()) fail("{} is empty, expected at least one message", field);
  for (size_t i = 0; i < list.size(); ++i) check_message(list[i], fmt::format("{}[{}]", field, i));
  return list;
}

}  // namespace temper::data
