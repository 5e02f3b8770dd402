#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/values/limits.h"
#include "templates/values/markup.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {
namespace {

// One conversion of a printf-like format: %[(key)][flags][width][.precision]kind.
class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& values)
      : format_(format.text()), markup_(format.is_markup()), values_(values) {
    if (values.is(Value::Kind::kTuple))
      items_ = values.items();
    else
      items_ = {values};
  }

  TracedText run() {
    while (at_ < format_.size()) {
      if (format_[at_] != '%')
        out_.add(format_.substr(at_++, 1));
      else if (++at_ < format_.size() && format_[at_] == '%')
        out_.add(format_.substr(at_++, 1));
      else
        conversion();
    }
    const bool container = values_.is_dict() || values_.is(Value::Kind::kList) || values_.is_undefined() ||
                           values_.is_range();  // need not be used
    if (used_ < items_.size() && !container) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  int64_t digits() {
    int64_t value = 0;
    while (at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9') {
      value = value * 10 + (format_[at_++] - '0');
      if (value > 1000) fail("a width or precision of more than 1000 is not supported");
    }
    return value;
  }

  Value next_value() {
    if (peek() == '(') {
      const size_t end = format_.find(')', at_);
      if (end == std::string_view::npos || !values_.is_dict()) fail("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      const Value* value = values_.find(key);
      if (!value) fail("the format's key '{}' is missing", key);
      return *value;
    }
    if (used_ >= items_.size()) fail("not enough arguments for format string");
    return items_[used_++];
  }

  void conversion() {
    const Value value = next_value();
    std::string flags;
    while (std::string_view("-+ 0#").find(peek()) != std::string_view::npos) flags += format_[at_++];
    const int64_t width = digits();
    int64_t precision = -1;
    if (peek() == '.') {
      ++at_;
      precision = digits();
    }
    const size_t begin = out_.size();
    out_.add(padded(convert(value, flags, precision), flags, static_cast<size_t>(width)));
    out_.mark(begin, source_of(value));
  }

  std::string convert(const Value& value, const std::string& flags, int64_t precision) {
    const char kind = peek();
    ++at_;
    if (kind == 's' || kind == 'r') {
      flags_zero_ = false;
      std::string text = kind == 's' ? to_text(value) : repr(value);
      if (markup_ && !(kind == 's' && value.is_markup())) text = escape_html(text);
      if (precision < 0) return text;
      return get_slice(Value(text), None(), Value(precision), None()).text();
    }
    flags_zero_ = kind != 'c';
    if (kind == 'c') return character(value);
    if (!value.is_number()) fail("%{} format: a number is required, not {}", kind, value.type_name());
    const std::string sign = flags.find('+') != std::string::npos   ? "+"
                             : flags.find(' ') != std::string::npos ? " "
                                                                    : "";
    std::string pattern = "%" + sign;
    if (flags.find('#') != std::string::npos) pattern += '#';
    if (std::string_view("diu").find(kind) != std::string_view::npos) {
      const int64_t whole = value.is_integer() ? value.integer() : to_int64(value.number());
      return fmt::format("{}{}", whole < 0 ? "" : sign, whole);
    }
    if (kind == 'x' || kind == 'X' || kind == 'o') {
      if (!value.is_integer()) fail("%{} format: an integer is required, not {}", kind, value.type_name());
      const int64_t number = value.integer();
      const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
      const std::string digits = kind == 'x'   ? fmt::format("{:x}", size)
                                 : kind == 'X' ? fmt::format("{:X}", size)
                                               : fmt::format("{:o}", size);
      return (number < 0 ? "-" : sign) + digits;
    }
    if (std::string_view("eEfFgG").find(kind) == std::string_view::npos)
      fail("unsupported format character '{}'", kind);
    pattern += ".*";
    pattern += kind;
    char buffer[1400];
    std::snprintf(buffer, sizeof buffer, pattern.c_str(), precision < 0 ? 6 : static_cast<int>(precision),
                  value.number());
    return buffer;
  }

  static std::string character(const Value& value) {
    if (value.is_string() && length_of(value) == 1) return value.text();
    if (!value.is_integer() || value.integer() < 0 || value.integer() > 0x10FFFF)
      fail("%c requires an int of a character or a char, found {}", value.type_name());
    std::string out;
    append_utf8(out, static_cast<char32_t>(value.integer()));
    return out;
  }

  std::string padded(std::string text, const std::string& flags, size_t width) {
    const size_t size = length_of(Value(text));
    const size_t missing = width > size ? width - size : 0;
    if (flags.find('-') != std::string::npos) return text + std::string(missing, ' ');
    if (!flags_zero_ || flags.find('0') == std::string::npos) return std::string(missing, ' ') + text;
    const bool has_sign = !text.empty() && std::string_view("+- ").find(text[0]) != std::string_view::npos;
    return text.insert(has_sign ? 1 : 0, missing, '0');
  }

  std::string_view format_;
  const bool markup_;
  const Value& values_;
  List items_;
  size_t at_ = 0, used_ = 0;
  bool flags_zero_ = false;
  TracedText out_;
};

}  // namespace

Value percent_format(const Value& format, const Value& values) {
  return PercentFormatter(format, values).run().take(format.is_markup());
}

}  // namespace temper::templates
