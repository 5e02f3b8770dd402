#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/builtins/format_spec.h"
#include "templates/builtins/methods.h"
#include "templates/text/unicode.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

Value list_of(const Value& whole, const std::vector<std::string_view>& parts) {
  List items;
  for (const std::string_view part : parts) items.push_back(part_of(whole, part));
  return Value::list(std::move(items));
}

template <std::string (*Map)(std::string_view)>
Value mapped(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "this method", {});
  return like(self, Map(self.text()));
}

template <Side side>
Value stripped(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "strip", {"chars"});
  return part_of(self, strip(self.text(), args.get(0), side));
}

// At runs of white space; `most` splits, from the right with from_right.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  const auto space_ahead = [&] { return is_space(next_utf8(from_right ? last_utf8(text) : text).value); };
  const auto drop = [&] {
    if (from_right)
      text.remove_suffix(last_utf8(text).size());
    else
      text.remove_prefix(next_utf8(text).size);
  };
  while (true) {
    while (!text.empty() && space_ahead()) drop();
    if (text.empty()) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    check_items(parts.size(), 1);
    const std::string_view before = text;
    while (!text.empty() && !space_ahead()) drop();
    parts.push_back(from_right ? before.substr(text.size()) : before.substr(0, before.size() - text.size()));
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? rfind_text(text, separator) : find_text(text, separator);
    if (at == std::string_view::npos) break;
    check_items(parts.size(), 1);
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    parts.push_back(from_right ? after : before);
    text = from_right ? before : after;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value split(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "split", {"sep", "maxsplit"});
  const int64_t most = args.integer(1, -1);
  if (!args.get(0) || args[0].is_none()) return list_of(self, split_spaces(self.text(), most, from_right));
  return list_of(self, split_at(self.text(), args.text(0, ""), most, from_right));
}

Value splitlines(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "splitlines", {"keepends"});
  return list_of(self, split_lines(self.text(), args.truth(0, false)));
}

template <bool from_right>
Value partition(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "partition", {"sep"}, 1);
  const std::string_view text = self.text();
  const std::string separator = args.text(0, "");
  if (separator.empty()) fail("empty separator");
  const size_t at = from_right ? rfind_text(text, separator) : find_text(text, separator);
  if (at == std::string_view::npos)
    return from_right ? Value::tuple({"", "", self}) : Value::tuple({self, "", ""});
  return Value::tuple({part_of(self, text.substr(0, at)), part_of(self, text.substr(at, separator.size())),
                       part_of(self, text.substr(at + separator.size()))});
}

// The part of the text that start and end (arguments 1 and 2) leave.
std::string window(const Value& self, const Bound& args) {
  return get_slice(self, args.get(1) ? args[1] : Value(None()), args.get(2) ? args[2] : Value(None()), None())
      .text();
}

template <bool at_end>
Value has_affix(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, at_end ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  const std::string text = args.get(1) ? window(self, args) : self.text();
  const List affixes = args[0].is(Value::Kind::kTuple) ? args[0].items() : List{args[0]};
  for (const Value& affix : affixes) {
    if (!affix.is_string())
      fail("{} first arg must be str or a tuple of str, not {}", at_end ? "endswith" : "startswith",
           affix.type_name());
    if (at_end ? text.ends_with(affix.text()) : text.starts_with(affix.text())) return true;
  }
  return false;
}

template <bool at_end>
Value remove_affix(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "removing an affix", {"affix"}, 1);
  const std::string affix = args.text(0, "");
  std::string_view text = self.text();
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return part_of(self, text);
}

template <bool from_right, bool must_exist>
Value find(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "find", {"sub", "start", "end"}, 1);
  const std::string text = window(self, args), part = args.text(0, "");
  const size_t at = from_right ? rfind_text(text, part) : find_text(text, part);
  if (at == std::string::npos) {
    if (must_exist) fail("substring not found");
    return -1;
  }
  const auto size = static_cast<int64_t>(length_of(self));
  int64_t start = args.integer(1, 0);
  if (start < 0) start = std::max<int64_t>(0, start + size);
  return start + static_cast<int64_t>(length_of(Value(text.substr(0, at))));
}

Value count(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "count", {"sub", "start", "end"}, 1);
  const std::string text = window(self, args), part = args.text(0, "");
  if (part.empty()) return length_of(Value(text)) + 1;
  return split_at(text, part, -1, false).size() - 1;
}

Value replace_all(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "replace", {"old", "new", "count"}, 2);
  return replace(self, args.text(0, ""), args.text(1, ""), args.integer(2, -1));
}

Value join(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "join", {"iterable"}, 1);
  size_t count = 0;
  JoinedText joined(self);
  for (const Value& item : items_of(args[0])) {
    if (!item.is_string()) fail("sequence item {}: expected str instance, {} found", count, item.type_name());
    joined.add(item);
    ++count;
  }
  return joined.take();
}

template <Side side>
Value padded(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "padding", {"width", "fillchar"}, 1);
  return like(self, pad(self.text(), args.integer(0, 0), args.text(1, " "), side));
}

Value zfill(const Value& self, const Arguments& arguments) {
  const Bound args(arguments, "zfill", {"width"}, 1);
  const std::string& text = self.text();
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  if (!sign) return pad(text, args.integer(0, 0), "0", Side::kRight);
  return text[0] + pad(text.substr(1), args.integer(0, 0) - 1, "0", Side::kRight);
}

template <bool (*Is)(char32_t)>
Value all_are(const Value& self, const Arguments&) {
  const std::u32string characters = to_utf32(self.text());
  return !characters.empty() && std::all_of(characters.begin(), characters.end(), Is);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

Value is_ascii(const Value& self, const Arguments&) {
  return std::all_of(self.text().begin(), self.text().end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

template <bool (*Is)(char32_t), bool (*IsNot)(char32_t)>
Value has_case(const Value& self, const Arguments&) {
  const std::u32string characters = to_utf32(self.text());
  return std::any_of(characters.begin(), characters.end(), Is) &&
         std::none_of(characters.begin(), characters.end(), IsNot);
}

constexpr std::pair<std::string_view, Method> kMethods[] = {{"strip", stripped<Side::kBoth>},
                                                            {"lstrip", stripped<Side::kLeft>},
                                                            {"rstrip", stripped<Side::kRight>},
                                                            {"split", split<false>},
                                                            {"rsplit", split<true>},
                                                            {"splitlines", splitlines},
                                                            {"partition", partition<false>},
                                                            {"rpartition", partition<true>},
                                                            {"startswith", has_affix<false>},
                                                            {"endswith", has_affix<true>},
                                                            {"removeprefix", remove_affix<false>},
                                                            {"removesuffix", remove_affix<true>},
                                                            {"find", find<false, false>},
                                                            {"rfind", find<true, false>},
                                                            {"index", find<false, true>},
                                                            {"rindex", find<true, true>},
                                                            {"count", count},
                                                            {"replace", replace_all},
                                                            {"join", join},
                                                            {"upper", mapped<upper>},
                                                            {"lower", mapped<lower>},
                                                            {"casefold", mapped<casefold>},
                                                            {"title", mapped<title>},
                                                            {"capitalize", mapped<capitalize>},
                                                            {"swapcase", mapped<swapcase>},
                                                            {"ljust", padded<Side::kLeft>},
                                                            {"rjust", padded<Side::kRight>},
                                                            {"center", padded<Side::kBoth>},
                                                            {"zfill", zfill},
                                                            {"isspace", all_are<is_space>},
                                                            {"isalpha", all_are<is_alpha>},
                                                            {"isdigit", all_are<is_decimal>},
                                                            {"isdecimal", all_are<is_decimal>},
                                                            {"isnumeric", all_are<is_numeric>},
                                                            {"isalnum", all_are<is_alnum>},
                                                            {"isascii", is_ascii},
                                                            {"isupper", has_case<is_upper, is_lower>},
                                                            {"islower", has_case<is_lower, is_upper>},
                                                            {"format", format_text}};

}  // namespace

Method find_string_method(std::string_view name) {
  for (const auto& [known, method] : kMethods)
    if (known == name) return method;
  return nullptr;
}

}  // namespace temper::templates
