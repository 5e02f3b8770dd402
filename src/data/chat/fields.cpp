#include "data/chat/fields.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::data {
namespace {

constexpr std::array<std::string_view, kNumFormats> kFormatNames = {
    "auto", "messages",   "sharegpt",    "alpaca",         "prompt_completion",
    "text", "preference", "prompt_only", "classification", "tokens"};

constexpr std::array<std::string_view, 6> kKnownRoles = {"system",    "developer", "user",
                                                         "assistant", "tool",      "function"};

constexpr std::string_view kExpected =
    "expected one of: messages; conversations; instruction and output; question and answer; prompt and "
    "completion; text; text and label; chosen and rejected; prompt; input_ids (a run renames others "
    "with data.train[].columns)";

bool holds_nul(const Json& value) {
  const auto in = [](const auto& list, const auto& part) {
    return std::any_of(list.begin(), list.end(), [&](const auto& each) { return holds_nul(part(each)); });
  };
  if (value.is_string()) return value.as_string().find('\0') != std::string::npos;
  if (value.is_array()) return in(value.as_array(), [](const Json& each) -> const Json& { return each; });
  return value.is_object() &&
         in(value.as_object(), [](const auto& each) -> const Json& { return each.second; });
}

size_t text_bytes(const Json& value) {
  size_t bytes = 0;
  if (value.is_string()) bytes = value.as_string().size();
  if (value.is_array())
    for (const Json& each : value.as_array()) bytes += text_bytes(each);
  if (value.is_object())
    for (const auto& [name, each] : value.as_object()) bytes += text_bytes(each);
  return bytes;
}

void check_message(const Json& message, const std::string& place) {
  if (!message.is_object()) fail("{} must be an object, found {}", place, message.kind_name());
  const Json* role = field_of(message, "role");
  if (!role) fail("{}.role is missing", place);
  if (check_string(*role, place + ".role").empty()) fail("{}.role is empty", place);
  const Json* content = field_of(message, "content");
  if (content) check_string(*content, place + ".content");
  if (!content && !field_of(message, "tool_calls"))
    fail("{}.content is missing, expected a string (or tool_calls)", place);
}

// Whether a list of turns says who speaks with `from`.
RowFormat turns_format(const Json& turns) {
  const bool sharegpt = turns.is_array() && !turns.as_array().empty() && turns.as_array()[0].is_object() &&
                        turns.as_array()[0].find("from") != nullptr;
  return sharegpt ? RowFormat::kShareGpt : RowFormat::kMessages;
}

void need_both(const Json& row, std::string_view one, std::string_view other) {
  if ((field_of(row, one) == nullptr) == (field_of(row, other) == nullptr)) return;
  const bool has_one = field_of(row, one) != nullptr;
  fail("{} is missing although {} is present (fields: {}); {}", has_one ? other : one, has_one ? one : other,
       fields_of(row), kExpected);
}

// Where turns stand, whose role and content may have other names.
constexpr std::array<std::string_view, 6> kTurnFields = {"messages",   "conversations", "prompt",
                                                         "completion", "chosen",        "rejected"};
bool is_of_messages(std::string_view ours) { return ours == "role" || ours == "content"; }

// All names at once: one may be another's target. A field whose name is given to another one goes.
Json::Object renamed_fields(const Json::Object& fields, const Columns& columns, bool of_messages) {
  Json::Object out;
  for (const auto& [name, value] : fields) {
    bool taken = false;
    for (const auto& [ours, theirs] : columns) {
      if (is_of_messages(ours) != of_messages || theirs != name) continue;
      out.emplace_back(ours, value);
      taken = true;
    }
    const auto other = columns.find(name);
    if (!taken && (other == columns.end() || is_of_messages(name) != of_messages))
      out.emplace_back(name, value);
  }
  return out;
}

}  // namespace

std::string_view name_of(RowFormat format) { return kFormatNames[static_cast<size_t>(format)]; }

std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.as_object())
    names.push_back(value.is_null() ? name + " (null)" : name);
  return names.empty() ? "none" : list_some(names, ", ", 20);
}

const Json* field_of(const Json& row, std::string_view name) {
  const Json* field = row.find(name);
  return field && !field->is_null() ? field : nullptr;
}

const Json& required_field(const Json& row, std::string_view name) {
  const Json* field = field_of(row, name);
  if (!field) fail("{} is missing (fields: {})", name, fields_of(row));
  return *field;
}

bool is_known_role(std::string_view role) {
  return std::find(kKnownRoles.begin(), kKnownRoles.end(), role) != kKnownRoles.end();
}

void refuse_media(const Json& row) {
  for (const char* field : {"images", "image", "videos", "video", "audios", "audio", "pixel_values"}) {
    const Json* value = field_of(row, field);
    if (value && *value != Json("") && *value != Json(Json::Array{}) && *value != Json(Json::Object{}))
      fail(
          "has {}, which is not read: models learn from text alone; leave such rows out, or remove the field "
          "where the text makes sense without it",
          field);
  }
}

const std::string& check_string(const Json& value, const std::string& field) {
  if (!value.is_string()) fail("{} must be a string, found {}", field, value.kind_name());
  return value.as_string();
}

void check_characters(const Json& value, const std::string& place) {
  if (value.is_string()) {
    const size_t at = value.as_string().find('\0');
    if (at != std::string::npos)
      fail("{} has a NUL character (U+0000) at byte {}; a text has none: remove it", place, at);
  } else if (value.is_array()) {
    const Json::Array& list = value.as_array();
    for (size_t i = 0; i < list.size(); ++i)
      if (holds_nul(list[i])) check_characters(list[i], fmt::format("{}[{}]", place, i));
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.as_object())
      if (holds_nul(member))
        check_characters(member, place.empty() ? name : fmt::format("{}.{}", place, name));
  }
}

void check_size(const Json& row) {
  constexpr std::array<std::string_view, 17> kTexts = {"messages",
                                                       "conversations",
                                                       "prompt",
                                                       "completion",
                                                       "chosen",
                                                       "rejected",
                                                       "text",
                                                       "instruction",
                                                       "input",
                                                       "output",
                                                       "system",
                                                       "history",
                                                       "question",
                                                       "answer",
                                                       "tools",
                                                       "documents",
                                                       "chat_template_kwargs"};
  size_t bytes = 0;
  for (const auto& [name, value] : row.as_object())
    if (std::find(kTexts.begin(), kTexts.end(), name) != kTexts.end()) bytes += text_bytes(value);
  if (bytes > kMostTextBytes)
    fail("the row has {} of text, and a row has at most {}; cut it into several rows",
         format_bytes(static_cast<int64_t>(bytes)), format_bytes(int64_t{kMostTextBytes}));
}

Json rename_columns(const Json& row, const Columns& columns) {
  for (const auto& [ours, theirs] : columns)
    if (!is_of_messages(ours) && row.find(theirs) == nullptr)
      fail("there is no column '{}', which columns.{} names (fields: {})", theirs, ours, fields_of(row));
  Json out = renamed_fields(row.as_object(), columns, false);
  for (auto& [name, value] : out.as_object()) {
    if (!value.is_array() || std::find(kTurnFields.begin(), kTurnFields.end(), name) == kTurnFields.end())
      continue;
    for (Json& message : value.as_array())
      if (message.is_object()) message = renamed_fields(message.as_object(), columns, true);
  }
  return out;
}

RowFormat format_of(const Json& row) {
  if (!row.is_object()) fail("a row must be an object, found {}", row.kind_name());
  const auto has = [&](std::string_view name) { return field_of(row, name) != nullptr; };
  const bool messages = has("messages"), conversations = has("conversations"), text = has("text");
  const bool alpaca = has("instruction"), preference = has("chosen") || has("rejected");
  const bool prompt = has("completion") || (has("prompt") && !preference);
  const bool tokens = has("input_ids");
  const int formats = messages + conversations + alpaca + preference + prompt + text + tokens;
  if (formats > 1)
    fail(
        "a row has the fields of more than one format (fields: {}); {}; or say which with "
        "data.train[].format",
        fields_of(row), kExpected);
  if (formats == 0)
    fail("a row has no field that holds its text (fields: {}); {}", fields_of(row), kExpected);
  if (tokens) return RowFormat::kTokens;
  if (messages) return turns_format(row.at("messages"));
  if (conversations) return turns_format(row.at("conversations"));
  if (text && row.find("label") && !has("label"))
    fail("label is null; leave the row out, or set data.train[].format: text");
  if (text) return has("label") ? RowFormat::kClassification : RowFormat::kText;
  if (preference) {
    need_both(row, "chosen", "rejected");
    return RowFormat::kPreference;
  }
  if (alpaca) {
    need_both(row, "instruction", "output");
    return RowFormat::kAlpaca;
  }
  if (!has("completion")) return RowFormat::kPromptOnly;
  need_both(row, "prompt", "completion");
  return RowFormat::kPromptCompletion;
}

const Json::Array& check_messages(const Json& messages, const std::string& field) {
  const Json::Array& list = messages.as_array();
  for (size_t i = 0; i < list.size(); ++i) check_message(list[i], fmt::format("{}[{}]", field, i));
  return list;
}

}  // namespace temper::data
