#include "base/error.h"
#include "templates/builtins/format_spec.h"
#include "templates/builtins/lookup.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Replacement fields: {} {0} {name} {0.attribute[key]!r:spec}, where the spec may hold fields itself.
class Formatter {
 public:
  Formatter(const Arguments& arguments, bool markup) : arguments_(arguments), markup_(markup) {}

  TracedText run(std::string_view text, int levels = 2) {
    if (levels == 0) fail("Max string recursion exceeded");
    TracedText out;
    while (!text.empty()) {
      const char c = text[0];
      text.remove_prefix(1);
      if ((c == '{' || c == '}') && text.starts_with(c)) {
        text.remove_prefix(1);
        out.add(std::string_view(&c, 1));
      } else if (c == '{') {
        const size_t end = field_end(text);
        out.add(field(text.substr(0, end), levels));
        text.remove_prefix(end + 1);
      } else if (c == '}') {
        fail("Single '}}' encountered in format string");
      } else {
        out.add(std::string_view(&c, 1));
      }
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view text) {
    int open = 1;
    for (size_t i = 0; i < text.size(); ++i) {
      open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    fail("expected '}}' before end of string");
  }

  TracedText field(std::string_view text, int levels) {
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = lookup(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (text.starts_with('!')) {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':'))
        fail("expected ':' after conversion specifier");
      if (text[1] != 'r' && text[1] != 's') fail("Unknown conversion specifier '{}'", text.substr(1, 1));
      value = text[1] == 'r' ? like(value, repr(value)) : like(value, to_text(value));
      text.remove_prefix(2);
    }
    const std::string spec = text.empty() ? "" : run(text.substr(1), levels - 1).text();
    TracedText out;
    if (value.is_string() && spec.empty() && (!markup_ || value.is_markup())) {
      out.print(value);
      return out;
    }
    out.add(markup_ ? escape_html(format_value(value, spec)) : format_value(value, spec));
    out.mark(0, source_of(value));
    return out;
  }

  Value lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    name.remove_prefix(first_end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t end = std::min(name.find_first_of(".[", 1), name.size());
        value = get_attribute(value, name.substr(1, end - 1));
        name.remove_prefix(end);
      } else if (name[0] == '[' && name.find(']') != std::string_view::npos) {
        const std::string_view key = name.substr(1, name.find(']') - 1);
        value = get_item(
            value, is_number(key) ? Value(static_cast<int64_t>(std::stol(std::string(key)))) : Value(key));
        name.remove_prefix(key.size() + 2);
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (!name.empty() && !is_number(name)) {
      const Value* value = arguments_.find(name);
      if (!value) fail("format: there is no argument '{}'", name);
      return *value;
    }
    const bool automatic = name.empty();
    if (next_ > 0 ? !automatic : (automatic && numbered_))
      fail("cannot switch between automatic and manual numbering of fields");
    numbered_ |= !automatic;
    const size_t index = automatic ? next_++ : std::stoul(std::string(name));
    if (index >= arguments_.positional.size()) fail("format: there is no argument {}", index);
    return arguments_.positional[index];
  }

  const Arguments& arguments_;
  const bool markup_;
  size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value format_text(const Value& self, const Arguments& arguments) {
  return Formatter(arguments, self.is_markup()).run(self.text()).take(self.is_markup());
}

}  // namespace temper::templates
