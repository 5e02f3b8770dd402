#include "formats/csv/records.h"

#include <algorithm>
#include <array>

namespace temper::formats {
namespace {

// The end of a field without quotes: a separator, a line end, or the end of the text.
size_t plain_end(std::string_view text, size_t at, char separator) {
  while (at < text.size() && text[at] != separator && text[at] != '\n') ++at;
  return at;
}

// The closing quote of the field whose first character behind the opening one is at `at`.
size_t closing_quote(std::string_view text, size_t at) {
  for (at = text.find('"', at); at != std::string_view::npos; at = text.find('"', at + 2))
    if (at + 1 == text.size() || text[at + 1] != '"') return at;
  return at;
}

bool is_line_end(std::string_view text, size_t at) {
  return at >= text.size() || text[at] == '\n' || text.substr(at, 2) == "\r\n" || text.substr(at) == "\r";
}

// Behind the line end at `at`.
size_t behind_line_end(std::string_view text, size_t at) {
  if (at < text.size() && text[at] == '\r') ++at;
  return std::min(at + 1, text.size());
}

std::string unquoted(std::string_view field) {
  std::string out;
  out.reserve(field.size());
  for (size_t i = 0; i < field.size(); ++i) {
    out += field[i];
    i += field[i] == '"';
  }
  return out;
}

}  // namespace

size_t Records::fail(std::string problem, size_t at) {
  problem_ = std::move(problem);
  problem_at_ = at;
  return std::string_view::npos;
}

size_t Records::skip(std::string_view text, size_t at) {
  for (;;) {
    if (at < text.size() && text[at] == '"') {
      const size_t end = closing_quote(text, at + 1);
      if (end == std::string_view::npos)
        return fail("this field begins with a quote and has no closing one; the file may be cut off", at);
      at = end + 1;
      if (!is_line_end(text, at) && text[at] != separator_)
        return fail("text after a closing quote; a quote inside a quoted field is written twice (\"\")", at);
      if (is_line_end(text, at)) return behind_line_end(text, at);
    } else {
      at = plain_end(text, at, separator_);
      if (at >= text.size() || text[at] == '\n') return std::min(at + 1, text.size());
    }
    ++at;
  }
}

size_t Records::unclear_quote(std::string_view text, size_t at, size_t columns) const {
  size_t line_end = text.find('\n', at);
  if (line_end == std::string_view::npos || line_end + 1 == text.size()) return std::string_view::npos;
  for (size_t begin = at; begin < text.size(); begin = line_end + 1) {
    line_end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, line_end - begin);
    const auto separators = static_cast<size_t>(std::count(line.begin(), line.end(), separator_));
    if (!line.empty() && line != "\r" && separators + 1 != columns) return std::string_view::npos;
  }
  // The field that the first line ends in.
  for (line_end = text.find('\n', at); at < line_end; ++at) {
    const size_t begin = at;
    at = text[at] == '"' ? closing_quote(text, at + 1) + 1 : plain_end(text, at, separator_);
    if (at > line_end) return begin;
  }
  return std::string_view::npos;
}

std::vector<std::string> Records::read(std::string_view text, size_t at) const {
  std::vector<std::string> fields;
  for (;;) {
    if (at < text.size() && text[at] == '"') {
      const size_t end = closing_quote(text, at + 1);
      fields.push_back(unquoted(text.substr(at + 1, end - at - 1)));
      at = end + 1;
      if (is_line_end(text, at)) return fields;
    } else {
      const size_t end = plain_end(text, at, separator_);
      std::string_view field = text.substr(at, end - at);
      const bool last = end >= text.size() || text[end] == '\n';
      if (last && field.ends_with('\r')) field.remove_suffix(1);
      fields.emplace_back(field);
      at = end;
      if (last) return fields;
    }
    ++at;
  }
}

char separator_of(std::string_view text) {
  constexpr std::string_view kSeparators = ",;\t";
  std::array<size_t, kSeparators.size()> counts{};
  bool quoted = false;
  text.remove_prefix(std::min(text.find_first_not_of("\r\n\xEF\xBB\xBF"), text.size()));
  for (const char c : text) {
    if (c == '\n' && !quoted) break;
    quoted ^= c == '"';
    const size_t which = kSeparators.find(c);
    if (which != std::string_view::npos && !quoted) ++counts[which];
  }
  return kSeparators[static_cast<size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin())];
}

}  // namespace temper::formats
