#include "formats/json/layout.h"

#include <algorithm>
#include <iterator>

#include "formats/format.h"

namespace temper::formats {

bool is_of_a_row(std::string_view quoted_name) {
  constexpr std::string_view kNames[] = {"\"text\"",   "\"prompt\"",   "\"completion\"", "\"instruction\"",
                                         "\"chosen\"", "\"rejected\"", "\"label\""};
  return std::find(std::begin(kNames), std::end(kNames), quoted_name) != std::end(kNames);
}

namespace {

// Whether the object that begins here holds rows and is not one itself: it has a list of objects, but no
// messages.
bool holds_rows(std::string_view text, size_t at) {
  Scanner scanner(text, at);
  bool found = false;
  scanner.take('{');
  while (scanner.peek() == '"') {
    const size_t key = scanner.at();
    if (!scanner.skip_string()) return false;
    if (is_of_a_row(text.substr(key, scanner.at() - key)) || !scanner.take(':')) return false;
    scanner.peek();
    const List list = list_at(text, scanner.at());
    if (list == List::kMessages) return false;
    found |= list == List::kObjects;
    if (!scanner.skip_value() || !scanner.take(',')) break;
  }
  return found;
}

// Whether an object that its first line leaves open continues in the next one; otherwise that line is a
// broken row.
bool continues_below(std::string_view text, size_t line_end) {
  const std::string_view line = text.substr(0, line_end);
  const size_t last = line.find_last_not_of(" \t\r");
  if (std::string_view("{[,:").find(line[last]) != std::string_view::npos) return true;
  const char next = Scanner(text, line_end).peek();
  return next == ',' || next == '}' || next == ']';
}

}  // namespace

List list_at(std::string_view text, size_t at) {
  Scanner scanner(text, at);
  if (!scanner.take('[') || scanner.peek() != '{') return List::kNone;
  scanner.take('{');
  while (scanner.peek() == '"') {
    const size_t key = scanner.at();
    if (!scanner.skip_string()) break;
    const std::string_view name = text.substr(key, scanner.at() - key);
    if (!scanner.take(':')) break;
    if ((name == "\"role\"" || name == "\"from\"") && scanner.peek() == '"') return List::kMessages;
    if (!scanner.skip_value() || !scanner.take(',')) break;
  }
  return List::kObjects;
}

bool is_document(std::string_view text) {
  Scanner start(text, text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  if (start.peek() == '[') return true;
  if (start.peek() != '{') return false;
  const size_t line_end = std::min(text.find('\n', start.at()), text.size());
  Scanner line(text.substr(0, line_end), start.at());
  if (!line.skip_value())
    return line.at() >= line_end && line_end < text.size() && continues_below(text, line_end);
  // A whole object on the first line is a row, unless it is all there is and holds the rows.
  return Scanner(text, line.at()).at_end() && holds_rows(text, start.at());
}

}  // namespace temper::formats
