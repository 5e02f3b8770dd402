#include "templates/syntax/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/utf8.h"
#include "templates/syntax/string_literal.h"
#include "templates/text/unicode.h"

namespace temper::templates {
namespace {

using TokenKind = Token::Kind;

constexpr std::array<std::string_view, 27> kOperators = {"==", "!=", ">=", "<=", "//", "**", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};

// Line ends become \n, and one at the very end goes.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else if (i + 1 >= source.size() || source[i + 1] != '\n')
      out += '\n';
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || byte == '_' || (byte >= '0' && byte <= '9') ||
         ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view where) : source_(normalize_lines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const { fail("[{}:{}] {}", where_, line_, what); }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view prefix) const { return rest().starts_with(prefix); }
  void add(TokenKind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }
  std::string_view take(size_t count) {
    const std::string_view taken = rest().substr(0, count);
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    at_ += taken.size();
    return taken;
  }
  size_t space_size(std::string_view text) const {
    size_t size = 0;
    while (size < text.size() && is_space(next_utf8(text.substr(size)).value))
      size += next_utf8(text.substr(size)).size;
    return size;
  }
  void skip_space() { take(space_size(rest())); }

  // After a tag: "-" eats all white space, "+" nothing, and plain block tags one line end.
  void end_tag(char sign, bool block) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && block && starts("\n"))
      take(1);
    at_line_start_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // The text before a tag, as the tag leaves it: without white space for "-", without the indentation of a
  // block tag that is first in its line.
  void add_text(std::string_view text, char sign, bool block) {
    const int line = line_;
    take(text.size());
    if (sign == '-') {
      while (!text.empty() && is_space(next_utf8(last_utf8(text)).value))
        text.remove_suffix(last_utf8(text).size());
    } else if (sign != '+' && block) {
      const size_t start = text.rfind('\n') + 1;  // 0 without a line end
      const std::string_view indentation = text.substr(start);
      if ((start > 0 || at_line_start_) && space_size(indentation) == indentation.size())
        text = text.substr(0, start);
    }
    if (!text.empty()) tokens_.push_back({TokenKind::kText, std::string(text), line});
  }

  static char sign_after(std::string_view tag) {
    return tag.size() > 2 && (tag[2] == '-' || tag[2] == '+') ? tag[2] : ' ';
  }

  void text_and_tag() {
    size_t found = at_;
    while (true) {
      found = source_.find('{', found);
      if (found == std::string::npos || found + 1 >= source_.size()) {
        add_text(rest(), '+', false);
        return;
      }
      if (std::string_view("{%#").find(source_[found + 1]) != std::string_view::npos) break;
      ++found;
    }
    const char kind = source_[found + 1];
    const char sign = sign_after(std::string_view(source_).substr(found));
    add_text(rest().substr(0, found - at_), sign, kind != '{');
    const size_t raw = kind == '%' ? raw_tag_size(rest(), "raw") : 0;
    if (raw > 0) return raw_block(raw);
    take(sign == ' ' ? 2 : 3);
    if (kind == '#') return comment();
    add(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    expression(kind == '{');
  }

  void comment() {
    const size_t end = rest().find("#}");
    if (end == std::string_view::npos) refuse("a comment is not closed by #}");
    const char before = end > 0 ? rest()[end - 1] : ' ';
    take(end + 2);
    end_tag(before, true);
  }

  // The size of {% word %} at the front of `text`, up to and with "%}"; 0 when it is something else.
  size_t raw_tag_size(std::string_view text, std::string_view word) const {
    size_t at = sign_after(text) == ' ' ? 2 : 3;
    at += space_size(text.substr(at));
    if (!text.substr(at).starts_with(word)) return 0;
    at += word.size();
    at += space_size(text.substr(at));
    if (text.substr(at).starts_with("-%}") || (word == "endraw" && text.substr(at).starts_with("+%}")))
      return at + 3;
    return text.substr(at).starts_with("%}") ? at + 2 : 0;
  }

  void raw_block(size_t begin_size) {
    const std::string_view begin = take(begin_size);
    if (begin[begin.size() - 3] == '-') skip_space();
    at_line_start_ = source_[at_ - 1] == '\n';
    for (size_t end = rest().find("{%"); end != std::string_view::npos; end = rest().find("{%", end + 1)) {
      const size_t size = raw_tag_size(rest().substr(end), "endraw");
      if (size == 0) continue;
      add_text(rest().substr(0, end), sign_after(rest().substr(end)), true);
      const std::string_view tag = take(size);
      return end_tag(tag[tag.size() - 3], true);
    }
    refuse("a raw block is not closed by {% endraw %}");
  }

  // The inside of a tag, to its end.
  void expression(bool output) {
    const std::string_view end = output ? "}}" : "%}";
    open_.clear();
    while (true) {
      skip_space();
      if (at_ >= source_.size()) refuse(fmt::format("a tag is not closed by {}", end));
      const bool sign = (starts("-") || (starts("+") && !output)) && rest().substr(1).starts_with(end);
      if (open_.empty() && (sign || starts(end))) {
        add(output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
        const std::string_view tag = take(sign ? 3 : 2);
        return end_tag(tag[0], !output);
      }
      token();
    }
  }

  void token() {
    const char c = rest()[0];
    if (is_digit(c)) return number();
    if (is_word(c)) {
      size_t size = 1;
      while (size < rest().size() && is_word(rest()[size])) ++size;
      return add(TokenKind::kName, take(size));
    }
    if (c == '"' || c == '\'') return string(c);
    for (const std::string_view op : kOperators)
      if (starts(op)) {
        balance(op);
        add(TokenKind::kOperator, op);
        take(op.size());
        return;
      }
    refuse(fmt::format("unexpected character '{}'", rest().substr(0, next_utf8(rest()).size)));
  }

  void balance(std::string_view op) {
    static constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (op.size() != 1) return;
    if (kOpening.find(op[0]) != std::string_view::npos) open_ += kClosing[kOpening.find(op[0])];
    if (kClosing.find(op[0]) == std::string_view::npos) return;
    if (open_.empty()) refuse(fmt::format("unexpected '{}'", op));
    if (open_.back() != op[0]) refuse(fmt::format("unexpected '{}', expected '{}'", op, open_.back()));
    open_.pop_back();
  }

  size_t digits(size_t from) const {
    size_t at = from;
    while (at < rest().size() && (is_digit(rest()[at]) || (rest()[at] == '_' && at > from))) ++at;
    return at - from;
  }

  // 12, 1_000, 0x1F, 1.5, 2e10; after a dot (a.0.1) there are only whole numbers.
  void number() {
    if (starts("0x") || starts("0X") || starts("0o") || starts("0b")) {
      size_t size = 2;
      while (size < rest().size() && is_word(rest()[size])) ++size;
      return add(TokenKind::kInteger, take(size));
    }
    const bool after_dot = !tokens_.empty() && tokens_.back().is_operator(".");
    size_t size = digits(0);
    bool is_float = false;
    if (!after_dot && rest().substr(size).starts_with('.') && digits(size + 1) > 0) {
      size += 1 + digits(size + 1);
      is_float = true;
    }
    if (!after_dot && size < rest().size() && (rest()[size] | 0x20) == 'e') {
      const size_t sign =
          size + 1 < rest().size() && (rest()[size + 1] == '+' || rest()[size + 1] == '-') ? 1 : 0;
      const size_t exponent = digits(size + 1 + sign);
      if (exponent > 0) {
        size += 1 + sign + exponent;
        is_float = true;
      }
    }
    std::string text(rest().substr(0, size));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    take(size);
  }

  void string(char quote) {
    size_t size = 1;
    while (size < rest().size() && rest()[size] != quote) size += rest()[size] == '\\' ? 2 : 1;
    if (size >= rest().size()) refuse("a string is not closed");
    const auto value = unescape(rest().substr(1, size - 1));
    if (!value) refuse("a string has an escape that cannot be read");
    add(TokenKind::kString, *value);
    take(size + 1);
  }

  std::string source_;
  std::string_view where_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string open_;  // the brackets that are still to close
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view where) {
  return Lexer(source, where).run();
}

}  // namespace temper::templates
