#include "data/chat/messages.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "data/chat/empty_values.h"
#include "data/chat/fields.h"
#include "data/chat/tool_calls.h"
#include "templates/messages.h"

namespace temper::data {
namespace {

constexpr std::string_view kCall = "function_call";
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kSpeakers = {{
    {"system", "system"},
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"chatbot", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {kCall, kCall},
    {"observation", "tool"},
    {"tool", "tool"},
    {"tool_response", "tool"},
    {"function", "tool"},
    {"function_response", "tool"},
}};

// Empty for a name that is not known.
std::string_view known_role(std::string_view speaker) {
  for (const auto& [name, role] : kSpeakers)
    if (name == speaker) return role;
  return "";
}

std::string_view role_of(std::string_view speaker, const std::string& place) {
  if (const std::string_view role = known_role(speaker); !role.empty()) return role;
  fail("{}.from is '{}', expected human, gpt, system, function_call, observation or tool", place, speaker);
}

// A text from a list of parts: [{"type": "text", "text": "…"}].
std::string join_parts(const Json::Array& parts, const std::string& place) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_place = fmt::format("{}[{}]", place, i);
    if (!parts[i].is_object())
      fail("{} must be an object with type and text, found {}", part_place, parts[i].kind_name());
    const Json *type = field_of(parts[i], "type"), *text = field_of(parts[i], "text");
    if (type && *type != Json("text"))
      fail("{}.type is {}; only text can be trained on", part_place, type->dump());
    if (!text) fail("{}.text is missing", part_place);
    out += check_string(*text, part_place + ".text");
  }
  return out;
}

Json parse_text(const std::string& text, const std::string& field) {
  try {
    return Json::parse(text, "");
  } catch (const Error&) {
    fail("{} is a text that is not valid JSON", field);
  }
}

const Json::Array& check_list(const Json& list, const std::string& field) {
  if (!list.is_array()) fail("{} must be an array, found {}", field, list.kind_name());
  if (list.as_array().empty()) fail("{} is empty, expected at least one message", field);
  return list.as_array();
}

// `weight` or `train` may say whether a turn is trained on.
void read_weight(const Json& turn, Json& message, const std::string& place) {
  const Json *weight = field_of(turn, "weight"), *train = field_of(turn, "train");
  if (train && !train->is_bool()) fail("{}.train is {}, expected true or false", place, train->dump());
  if (weight && train && is_trained(turn, place) != train->as_bool())
    fail("{} has train: {} and weight: {}; expected one of them", place, train->dump(), weight->dump());
  if (weight) message.set("weight", *weight);
  if (train && !train->as_bool()) message.set("weight", 0);
}

// The texts that data call reasoning, which must be one.
void alias_reasoning(Json& message, const std::string& place) {
  const Json* first = nullptr;
  std::string_view name_of_first;
  for (const std::string_view name : templates::kReasoningFields) {
    const Json* found = field_of(message, name);
    if (!found) continue;
    check_string(*found, fmt::format("{}.{}", place, name));
    if (first && *first != *found)
      fail("{} has {} and another {}; expected one of them", place, name_of_first, name);
    if (!first) name_of_first = name;
    first = found;
  }
  if (!first) return;
  const Json reasoning = *first;
  if (!message.find("thinking"))
    message.as_object().insert(message.as_object().begin(), {"thinking", reasoning});
  message.set("reasoning_content", reasoning);
}

// Removes fields that are null, and fields without a value, except the role and the content.
void remove_empty(Json& message) {
  remove_nulls(message);
  std::erase_if(message.as_object(), [](const auto& field) {
    return field.first != "role" && field.first != "content" && !holds_something(field.second);
  });
}

// A message with calls and no text may have no content, null or an empty text.
void remove_empty_content(Json& message) {
  if (!message.find("tool_calls")) return;
  std::erase_if(message.as_object(),
                [](const auto& field) { return field.first == "content" && !holds_something(field.second); });
}

void read_message(Json& message, const std::string& place) {
  if (!message.is_object()) return;
  const Json* content = message.find("content");
  if (content && content->is_array())
    message.set("content", join_parts(content->as_array(), place + ".content"));
  remove_empty(message);
  read_weight(message, message, place);
  std::erase_if(message.as_object(), [](const auto& field) { return field.first == "train"; });
  alias_reasoning(message, place);
  read_calls(message, place);
  remove_empty_content(message);
}

}  // namespace

bool is_assistant(const Json& message) { return message.at("role") == Json("assistant"); }

bool is_trained(const Json& message, const std::string& place) {
  const Json* weight = field_of(message, "weight");
  if (!weight) return true;
  if (!weight->is_number() || (weight->as_double() != 0 && weight->as_double() != 1))
    fail("{}.weight is {}, expected 0 or 1", place, weight->dump());
  return weight->as_double() != 0;
}

bool is_trained(const Json& message, size_t turn) {
  return is_trained(message, fmt::format("messages[{}]", turn));
}

std::string_view text_in(const Json& message, std::string_view field) {
  const Json* value = message.find(field);
  return value && value->is_string() ? std::string_view(value->as_string()) : std::string_view();
}

Json::Array read_messages(const Json& list, const std::string& field) {
  Json::Array messages = check_list(list, field);
  for (size_t i = 0; i < messages.size(); ++i) read_message(messages[i], fmt::format("{}[{}]", field, i));
  Json checked = std::move(messages);
  check_messages(checked, field);
  return std::move(checked.as_array());
}

bool is_sharegpt_answer(const Json& turn) {
  const std::string_view role = turn.is_object() ? known_role(text_in(turn, "from")) : "";
  return role == "assistant" || role == kCall;
}

Json::Array read_sharegpt(const Json& list, const std::string& field) {
  Json::Array messages;
  for (const Json& turn : check_list(list, field)) {
    const std::string place = fmt::format("{}[{}]", field, messages.size());
    if (!turn.is_object())
      fail("{} must be an object with from and value, found {}", place, turn.kind_name());
    const Json *from = field_of(turn, "from"), *value = field_of(turn, "value");
    if (!from || !value) fail("{} must have from and value (fields: {})", place, fields_of(turn));
    const std::string_view role = role_of(check_string(*from, place + ".from"), place);
    const std::string& text = check_string(*value, place + ".value");
    if (role == kCall)
      messages.push_back(
          Json::Object{{"role", "assistant"}, {"tool_calls", calls_of_text(text, place + ".value")}});
    else
      messages.push_back(Json::Object{{"role", role}, {"content", text}});
    read_weight(turn, messages.back(), place);
    read_calls(messages.back(), place);
  }
  return messages;
}

Json template_variables(const Json& row) {
  Json variables = Json::Object{};
  if (const Json* extra = field_of(row, "chat_template_kwargs")) {
    if (!extra->is_object()) fail("chat_template_kwargs must be an object, found {}", extra->kind_name());
    variables = *extra;
    remove_nulls(variables);
    for (const char* name : {"messages", "add_generation_prompt"})
      if (variables.find(name)) fail("chat_template_kwargs must not hold {}, which the row has itself", name);
  }
  for (const char* name : {"tools", "documents"}) {
    const Json* value = field_of(row, name);
    if (!value) continue;
    Json list = value->is_string() ? parse_text(value->as_string(), name) : *value;
    if (!list.is_array()) fail("{} must be an array, found {}", name, list.kind_name());
    remove_nulls(list);
    if (list.as_array().empty()) continue;
    const Json* other = field_of(variables, name);
    if (other && *other != list)
      fail("{} and chat_template_kwargs.{} differ; expected one of them", name, name);
    variables.set(name, std::move(list));
  }
  return variables;
}

}  // namespace temper::data
