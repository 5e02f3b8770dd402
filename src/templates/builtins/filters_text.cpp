#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/builtins/filters.h"
#include "templates/builtins/methods.h"
#include "templates/text/unicode.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

const std::string& only_text(const Value& subject, std::string_view filter) {
  require_defined(subject);
  if (!subject.is_string()) fail("filter '{}' needs a str, found {}", filter, subject.type_name());
  return subject.text();
}

Value as_text(const Value& value) {
  if (value.is_string()) return value;
  TracedText text;
  text.print(value);
  return text.take();
}

Value string_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'string'", {});
  return as_text(subject);
}

// Words start after white space and after any of -({[<.
std::string title_words(std::string_view text) {
  std::string out;
  bool start = true;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    const std::string_view character = text.substr(0, step.size);
    const bool separates =
        is_space(step.value) || std::string_view("-({[<").find(character) != std::string_view::npos;
    out += separates ? std::string(character) : start ? upper(character) : lower(character);
    start = separates;
    text.remove_prefix(step.size);
  }
  return out;
}

template <std::string (*Map)(std::string_view)>
Value mapped(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "this filter", {});
  return like(subject, Map(to_text(subject)));
}

Value title_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'title'", {});
  TracedText text;
  text.add(title_words(to_text(subject)));
  text.mark(0, source_of(subject));
  return text.take();
}

Value safe(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'safe'", {});
  TracedText text;
  text.print(subject);
  return text.take(true);
}

Value escape(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'escape'", {});
  return escaped(subject);
}

Value forceescape(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'forceescape'", {});
  return Value::markup(escape_html(to_text(subject)));
}

Value trim(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'trim'", {"chars"});
  const Value text = as_text(subject);
  return part_of(text, strip(text.text(), args.get(0), Side::kBoth));
}

Value replace_filter(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'replace'", {"old", "new", "count"}, 2);
  return replace(as_text(subject), to_text(args[0]), to_text(args[1]), args.integer(2, -1));
}

Value indent(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'indent'", {"width", "first", "blank"});
  const bool text_width = args.get(0) && args[0].is_string();
  const std::string indentation =
      text_width ? args[0].text()
                 : std::string(static_cast<size_t>(std::clamp<int64_t>(args.integer(0, 4), 0, 10000)), ' ');
  const bool blank = args.truth(2, false);
  const std::string text = only_text(subject, "indent") + "\n";
  std::string out;
  if (args.truth(1, false)) out = indentation;
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!first) {
      out += '\n';
      if (blank || !line.empty()) out += indentation;
    }
    out += line;
    check_text_size(1, out.size());
    first = false;
  }
  return like(subject, std::move(out));
}

Value center(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'center'", {"width"});
  return like(subject, pad(to_text(subject), args.integer(0, 80), " ", Side::kBoth));
}

Value format(const Value& subject, const Arguments& arguments) {
  if (arguments.named.empty())
    return percent_format(subject.is_string() ? subject : Value(to_text(subject)),
                          Value::tuple(arguments.positional));
  if (!arguments.positional.empty()) fail("filter 'format' takes positional or named arguments, not both");
  Dict entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(name, value);
  return percent_format(subject.is_string() ? subject : Value(to_text(subject)),
                        Value::dict(std::move(entries)));
}

Value truncate(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'truncate'", {"length", "killwords", "end", "leeway"});
  const int64_t length = args.integer(0, 255), leeway = args.integer(3, 5);
  const std::string end = args.text(2, "...");
  const auto end_size = static_cast<int64_t>(length_of(Value(end)));
  if (length < end_size || leeway < 0)
    fail("filter 'truncate': length must be at least {}, leeway 0", end_size);
  if (static_cast<int64_t>(length_of(subject)) <= length + leeway) return subject;
  const std::u32string text = to_utf32(only_text(subject, "truncate"));
  std::u32string kept = text.substr(0, static_cast<size_t>(length - end_size));
  if (!args.truth(1, false)) kept = kept.substr(0, kept.rfind(U' '));
  return arithmetic("+", like(subject, to_utf8(kept)), args.get(2) ? args[2] : Value(end));
}

Value wordcount(const Value& subject, const Arguments&) {
  int64_t count = 0;
  bool inside = false;
  for (const char32_t c : to_utf32(to_text(subject))) {
    const bool word = is_alpha(c) || is_numeric(c) || c == '_';
    count += word && !inside;
    inside = word;
  }
  return count;
}

// Percent signs for all but letters, digits and _.-~ and what `safe` names.
std::string quote_url(std::string_view text, std::string_view safe) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       safe.find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

// A text, or pairs as a query.
Value urlencode(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'urlencode'", {});
  const bool pairs = subject.is_dict() || subject.is(Value::Kind::kList) || subject.is(Value::Kind::kTuple) ||
                     subject.is(Value::Kind::kView);
  if (!pairs) return quote_url(to_text(subject), "/");
  const auto quote = [](const Value& value) {
    std::string out = quote_url(to_text(value), " ");
    std::replace(out.begin(), out.end(), ' ', '+');
    return out;
  };
  JoinedText joined("&");
  for (const Value& item :
       items_of(subject.is_dict() ? find_method(subject, "items")->function().call({}) : subject)) {
    const List pair = items_of(item);
    if (pair.size() != 2) fail("filter 'urlencode' needs pairs, found {} values", pair.size());
    joined.add(Value(quote(pair[0]) + "=" + quote(pair[1])));
  }
  return joined.take();
}

Value tojson(const Value& subject, const Arguments& arguments) {
  const Bound args(arguments, "filter 'tojson'", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = args.truth(0, false);
  style.sort_keys = args.truth(3, false);
  if (args.get(1) && !args[1].is_none()) {
    style.spread = true;
    style.item_separator.pop_back();  // no space before a line end
    style.indent =
        args[1].is_string()
            ? args[1].text()
            : std::string(static_cast<size_t>(std::clamp<int64_t>(args.integer(1, 0), 0, 1000)), ' ');
  }
  if (args.get(2) && !args[2].is_none()) {
    const List separators = items_of(args[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      fail("filter 'tojson': separators must be two texts");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  TracedText text;
  text.add(to_json(subject, style));
  text.mark(0, source_of(subject));
  return text.take();
}

constexpr std::pair<std::string_view, Filter> kTextFilters[] = {{"upper", mapped<upper>},
                                                                {"lower", mapped<lower>},
                                                                {"title", title_filter},
                                                                {"capitalize", mapped<capitalize>},
                                                                {"string", string_filter},
                                                                {"safe", safe},
                                                                {"e", escape},
                                                                {"escape", escape},
                                                                {"forceescape", forceescape},
                                                                {"trim", trim},
                                                                {"replace", replace_filter},
                                                                {"indent", indent},
                                                                {"center", center},
                                                                {"format", format},
                                                                {"truncate", truncate},
                                                                {"wordcount", wordcount},
                                                                {"urlencode", urlencode},
                                                                {"tojson", tojson}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const auto& [known, filter] : kTextFilters)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace temper::templates
