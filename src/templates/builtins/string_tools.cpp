#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/builtins/methods.h"
#include "templates/text/unicode.h"
#include "templates/values/limits.h"
#include "templates/values/operators.h"

namespace temper::templates {

std::string_view strip(std::string_view text, const Value* characters, Side side) {
  std::u32string set;
  const bool spaces = !characters || characters->is_none();
  if (!spaces) {
    if (!characters->is_string())
      fail("strip: the characters must be a str, found {}", characters->type_name());
    set = to_utf32(characters->text());
  }
  const auto goes = [&](char32_t c) { return spaces ? is_space(c) : set.find(c) != std::u32string::npos; };
  if (side != Side::kRight)
    while (!text.empty() && goes(next_utf8(text).value)) text.remove_prefix(next_utf8(text).size);
  if (side != Side::kLeft)
    while (!text.empty() && goes(next_utf8(last_utf8(text)).value))
      text.remove_suffix(last_utf8(text).size());
  return text;
}

Value replace(const Value& subject, std::string_view from, std::string_view to, int64_t most) {
  const std::string_view text = subject.text();
  TracedText out;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    size_t found = std::string_view::npos;
    if (!from.empty()) {
      found = find_text(text.substr(at), from);
      if (found != std::string_view::npos) found += at;
    } else {  // before each character and at the end
      if (count > 0 && at >= text.size()) break;
      found = count == 0 ? 0 : at + next_utf8(text.substr(at)).size;
    }
    if (found == std::string_view::npos) break;
    out.add_part(subject, text.substr(at, found - at));
    const size_t begin = out.size();
    out.add(to);
    out.mark(begin, source_at(subject, found));
    at = found + from.size();
  }
  out.add_part(subject, text.substr(at));
  return out.take();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    const char32_t c = step.value;
    const bool end =
        (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    size_t next = at + step.size;
    if (end) {
      check_items(lines.size(), 1);
      if (c == '\r' && text.substr(next).starts_with('\n')) ++next;
      lines.push_back(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string pad(std::string_view text, int64_t width, std::string_view fill, Side text_side) {
  if (to_utf32(fill).size() != 1) fail("the fill character must be exactly one character long");
  const auto size = static_cast<int64_t>(length_of(Value(text)));
  if (width <= size) return std::string(text);
  const int64_t missing = width - size;
  check_text_size(static_cast<size_t>(missing), fill.size());
  // Python's center puts the odd one to the left when the width is odd.
  const int64_t before = text_side == Side::kLeft    ? 0
                         : text_side == Side::kRight ? missing
                                                     : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

void JoinedText::add(const Value& part) {
  if (!first_) out_.print(separator_);
  first_ = false;
  out_.print(part);
}

}  // namespace temper::templates
