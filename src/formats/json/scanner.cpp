#include "formats/json/scanner.h"

#include <array>
#include <cstring>
#include <utility>

namespace temper::formats {
namespace {

constexpr size_t kMaxDepth = 512;  // the parser's

enum class Class : unsigned char { kInvalid, kSpace, kWord, kComma, kQuote, kOpen, kClose };

constexpr std::array<Class, 256> kClasses = [] {
  std::array<Class, 256> classes{};
  const auto set = [&](std::string_view characters, Class value) {
    for (const char c : characters) classes[static_cast<unsigned char>(c)] = value;
  };
  set(" \t\r\n", Class::kSpace);
  set("0123456789+-.eEtrufalsn", Class::kWord);
  set(",:", Class::kComma);
  set("\"", Class::kQuote);
  set("{[", Class::kOpen);
  set("}]", Class::kClose);
  return classes;
}();

Class class_of(char c) { return kClasses[static_cast<unsigned char>(c)]; }

constexpr const char* kEnd = "the file ends here, inside a value; it may be cut off";

}  // namespace

bool Scanner::fail(std::string problem) {
  problem_ = std::move(problem);
  return false;
}

char Scanner::peek() {
  while (at_ < text_.size() && class_of(text_[at_]) == Class::kSpace) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool Scanner::at_end() {
  peek();
  return at_ >= text_.size();
}

bool Scanner::take(char wanted) {
  if (peek() != wanted) return false;
  ++at_;
  return true;
}

bool Scanner::skip_string() {
  const size_t first = at_ + 1;
  size_t from = first;
  while (from < text_.size()) {
    const void* found = std::memchr(text_.data() + from, '"', text_.size() - from);
    if (found == nullptr) break;
    const size_t quote = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
    size_t escapes = quote;
    while (escapes > first && text_[escapes - 1] == '\\') --escapes;
    from = quote + 1;
    if ((quote - escapes) % 2 == 1) continue;
    at_ = from;
    return true;
  }
  return fail("this string has no end; the file may be cut off");
}

bool Scanner::skip_value() {
  switch (class_of(peek())) {
    case Class::kQuote:
      return skip_string();
    case Class::kOpen:
      return skip_nested();
    case Class::kWord:
      while (at_ < text_.size() && class_of(text_[at_]) == Class::kWord) ++at_;
      return true;
    default:
      return fail(at_ < text_.size() ? "a value was expected here" : kEnd);
  }
}

bool Scanner::skip_nested() {
  std::array<char, kMaxDepth> closers;
  size_t depth = 0;
  do {
    if (at_ >= text_.size()) return fail(kEnd);
    const char c = text_[at_];
    switch (class_of(c)) {
      case Class::kInvalid:
        return fail("a character that may only stand in a string");
      case Class::kQuote:
        if (!skip_string()) return false;
        continue;
      case Class::kOpen:
        if (depth == kMaxDepth) return fail("more than 512 levels deep");
        closers[depth++] = c == '{' ? '}' : ']';
        break;
      case Class::kClose:
        if (c != closers[--depth]) return fail(std::string("expected ") + closers[depth] + " here");
        break;
      default:
        break;
    }
    ++at_;
  } while (depth > 0);
  return true;
}

}  // namespace temper::formats
