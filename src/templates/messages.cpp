#include "templates/messages.h"

#include <algorithm>

namespace temper::templates {
namespace {

Field field_of(std::string_view name) {
  if (name == "content") return Field::kContent;
  if (name == "tool_calls" || name == "function_call") return Field::kToolCalls;
  const bool reasoning =
      std::find(kReasoningFields.begin(), kReasoningFields.end(), name) != kReasoningFields.end();
  return reasoning ? Field::kReasoning : Field::kOther;
}

Value traced_content(const std::string& content, size_t message) {
  const auto thinking = thinking_inside(content);
  if (!thinking) return Value::from_json(content, Source{message, Field::kContent});
  Origins origins;
  const auto add = [&](size_t begin, size_t end, Field field) {
    if (begin < end) origins.push_back({begin, end, {message, field}});
  };
  add(0, thinking->begin, Field::kOther);
  add(thinking->begin, thinking->end, Field::kReasoning);
  add(thinking->end, thinking->answer, Field::kOther);
  add(thinking->answer, content.size(), Field::kContent);
  return Value::traced(content, std::move(origins), false);
}

Value traced_field(std::string_view name, const Json& value, size_t message) {
  if (name == "role") return Value::from_json(value);
  if (name == "content" && value.is_string()) return traced_content(value.as_string(), message);
  return Value::from_json(value, Source{message, field_of(name)});
}

}  // namespace

std::optional<ThinkingInside> thinking_inside(std::string_view content) {
  const size_t end = content.find(kThinkingEnd);
  if (end == std::string_view::npos) return std::nullopt;
  const size_t first = std::min(content.find_first_not_of(kWhiteSpace), end);
  const bool opened = content.substr(first, end - first).starts_with(kThinkingBegin);
  return ThinkingInside{opened ? first + kThinkingBegin.size() : 0, end, end + kThinkingEnd.size()};
}

Value traced_messages(const Json& messages) {
  if (!messages.is_array()) return Value::from_json(messages);
  List items;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    if (!message.is_object()) {
      items.push_back(Value::from_json(message, Source{i, Field::kOther}));
      continue;
    }
    Dict entries;
    for (const auto& [name, value] : message.as_object())
      entries.emplace_back(name, traced_field(name, value, i));
    items.push_back(Value::watched_dict(std::move(entries)));
  }
  return Value::list(std::move(items));
}

}  // namespace temper::templates
