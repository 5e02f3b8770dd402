#include "templates/values/traced_text.h"

#include <algorithm>

#include "templates/values/limits.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

// The first message, and its field where all that came from it is of one.
void join(std::optional<Source>& joined, const std::optional<Source>& more) {
  if (!joined)
    joined = more;
  else if (more && more->message == joined->message && more->field != joined->field)
    joined->field = Field::kSeveral;
}

std::optional<Source> source_among(const List& items) {
  std::optional<Source> source;
  for (const Value& item : items) join(source, source_of(item));
  return source;
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
    const Origin moved{begin - offset + shift, end - offset + shift, origin->source};
    const bool continues =
        !origins_.empty() && origins_.back().end == moved.begin && origins_.back().source == moved.source;
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
  mark(begin, source_of(value));
}

void TracedText::add_part(const Value& whole, std::string_view part) {
  add(part, whole.origins(), static_cast<size_t>(part.data() - whole.text().data()));
}

void TracedText::mark(size_t begin, std::optional<Source> source) {
  if (!source || begin == text_.size()) return;
  if (!origins_.empty() && origins_.back().end > begin) return;
  std::string text = text_.substr(begin);
  text_.resize(begin);
  add(text, {{0, text.size(), *source}}, 0);
}

Value TracedText::take(bool markup) { return Value::traced(std::move(text_), std::move(origins_), markup); }

Value part_of(const Value& whole, std::string_view part) {
  TracedText text;
  if (!part.empty()) text.add_part(whole, part);
  return text.take(whole.is_markup());
}

std::optional<Source> source_of(const Value& value) {
  spend();
  std::optional<Source> source;
  switch (value.kind()) {
    case Value::Kind::kString:
      for (const Origin& origin : value.origins()) join(source, origin.source);
      return source;
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kView:
      return source_among(value.items());
    case Value::Kind::kDict:
      for (const auto& [key, item] : value.entries()) {
        join(source, source_of(key));
        join(source, source_of(item));
      }
      return source;
    default:
      return std::nullopt;
  }
}

std::optional<Source> source_at(const Value& text, size_t byte) {
  const auto origin = first_ending_after(text.origins(), byte);
  if (origin == text.origins().end() || origin->begin > byte) return std::nullopt;
  return origin->source;
}

}  // namespace temper::templates
