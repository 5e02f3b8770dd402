#include "templates/traced_text.h"

#include <algorithm>

#include "templates/limits.h"
#include "templates/print.h"

namespace temper::templates {
namespace {

std::optional<size_t> message_among(const List& items) {
  for (const Value& item : items)
    if (const auto message = message_of(item)) return message;
  return std::nullopt;
}

Origins::const_iterator first_ending_after(const Origins& origins, size_t byte) {
  return std::partition_point(origins.begin(), origins.end(),
                              [byte](const Origin& origin) { return origin.end <= byte; });
}

}  // namespace

void TracedText::add(std::string_view text) { add(text, {}, 0); }

void TracedText::add(std::string_view text, const Origins& origins, size_t offset) {
  check_text_size(1, text_.size() + text.size());
  const size_t shift = text_.size();
  for (auto origin = first_ending_after(origins, offset);
       origin != origins.end() && origin->begin < offset + text.size(); ++origin) {
    const size_t begin = std::max(origin->begin, offset), end = std::min(origin->end, offset + text.size());
    const Origin moved{begin - offset + shift, end - offset + shift, origin->message};
    const bool continues =
        !origins_.empty() && origins_.back().end == moved.begin && origins_.back().message == moved.message;
    if (continues)
      origins_.back().end = moved.end;
    else
      origins_.push_back(moved);
  }
  text_ += text;
}

void TracedText::print(const Value& value) {
  if (value.is_string()) return add(value.text(), value.origins(), 0);
  const size_t begin = text_.size();
  add(to_text(value));
  mark(begin, message_of(value));
}

void TracedText::add_part(const Value& whole, std::string_view part) {
  add(part, whole.origins(), static_cast<size_t>(part.data() - whole.text().data()));
}

void TracedText::mark(size_t begin, std::optional<size_t> message) {
  if (!message || begin == text_.size()) return;
  if (!origins_.empty() && origins_.back().end > begin) return;
  std::string text = text_.substr(begin);
  text_.resize(begin);
  add(text, {{0, text.size(), *message}}, 0);
}

Value TracedText::take(bool markup) { return Value::traced(std::move(text_), std::move(origins_), markup); }

Value part_of(const Value& whole, std::string_view part) {
  TracedText text;
  if (!part.empty()) text.add_part(whole, part);
  return text.take(whole.is_markup());
}

std::optional<size_t> message_of(const Value& value) {
  spend();
  switch (value.kind()) {
    case Value::Kind::kString:
      return value.origins().empty() ? std::nullopt : std::optional(value.origins()[0].message);
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kView:
      return message_among(value.items());
    case Value::Kind::kDict:
      for (const auto& [key, item] : value.entries()) {
        if (const auto message = message_of(key)) return message;
        if (const auto message = message_of(item)) return message;
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<size_t> message_at(const Value& text, size_t byte) {
  const auto origin = first_ending_after(text.origins(), byte);
  if (origin == text.origins().end() || origin->begin > byte) return std::nullopt;
  return origin->message;
}

Value traced_messages(const Json& messages) {
  if (!messages.is_array()) return Value::from_json(messages);
  List items;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    if (!message.is_object()) {
      items.push_back(Value::from_json(message, i));
      continue;
    }
    Dict entries;
    for (const auto& [name, value] : message.as_object())
      entries.emplace_back(name, name == "role" ? Value::from_json(value) : Value::from_json(value, i));
    items.push_back(Value::dict(std::move(entries)));
  }
  return Value::list(std::move(items));
}

}  // namespace temper::templates
