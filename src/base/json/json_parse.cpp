#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace temper {
namespace {

constexpr int kMaxDepth = 512;
// The keys of small objects are compared with each other; those of larger ones by their hashes.
constexpr size_t kSmallObject = 16;
constexpr size_t kLongString = size_t{1} << 20;  // bytes
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Json run() {
    if (text_.starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
    Json value = any();
    if (skip_space(); at_ < text_.size())
      refuse(fmt::format("unexpected text '{}' after the value", quoted_text()));
    return value;
  }

 private:
  [[noreturn]] void refuse(std::string_view problem) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    fail("[{}:{}:{}] not valid JSON: {}", where_, line, before.size() - start + 1, problem);
  }

  // What stands here, for a message: a word or a character; nothing at the end.
  std::string_view quoted_text() const {
    constexpr size_t kQuoted = 24;
    std::string_view found = text_.substr(at_, text_.substr(at_).find_first_of(" \t\r\n,:]}"));
    if (found.empty()) found = text_.substr(at_, 1);
    found = found.substr(0, kQuoted);
    return found.substr(0, valid_utf8_prefix(found));
  }

  // Python and JavaScript write some numbers that JSON does not have.
  [[noreturn]] void refuse_text() const {
    if (at_ == text_.size()) refuse("the text ends early, a value was expected here");
    const std::string_view found = quoted_text();
    if (found.empty()) refuse("the text is not UTF-8; write the file as UTF-8, or download it again");
    for (const std::string_view name : {"NaN", "nan", "Infinity", "inf"})
      if (found == name)
        refuse(fmt::format("{} is not a number in JSON; write null, or a finite number", found));
    refuse(fmt::format("unexpected text '{}', a value was expected here", found));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  Json any() {
    skip_space();
    switch (peek()) {
      case '{':
        return object();
      case '[':
        return array();
      case '"':
        return Json(string());
      case 't':
        return word("true", Json(true));
      case 'f':
        return word("false", Json(false));
      case 'n':
        return word("null", Json());
      default:
        return number();
    }
  }

  Json word(std::string_view word, Json value) {
    if (!text_.substr(at_).starts_with(word)) refuse_text();
    at_ += word.size();
    return value;
  }

  void enter() {
    ++at_;
    if (++depth_ > kMaxDepth) refuse(fmt::format("more than {} levels deep", kMaxDepth));
  }

  Json array() {
    enter();
    Json::Array list;
    skip_space();
    if (!take(']')) {
      do list.push_back(any());
      while (skip_space(), take(','));
      if (!take(']')) refuse("expected ',' or ']'");
    }
    --depth_;
    return Json(std::move(list));
  }

  Json object() {
    enter();
    Json::Object members;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        if (peek() != '"') refuse("expected a key in double quotes");
        std::string key = string();
        if (skip_space(); !take(':')) refuse("expected ':'");
        members.emplace_back(std::move(key), any());
      } while (skip_space(), take(','));
      if (!take('}')) refuse("expected ',' or '}'");
    }
    --depth_;
    check_keys(members);
    return Json(std::move(members));
  }

  void check_keys(const Json::Object& members) const {
    const auto twice = [&](const std::string& key) {
      refuse(fmt::format("key '{}' occurs twice in one object", key));
    };
    if (members.size() <= kSmallObject) {
      for (size_t i = 0; i < members.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (members[i].first == members[j].first) twice(members[i].first);
      return;
    }
    std::vector<std::pair<size_t, const std::string*>> keys;
    keys.reserve(members.size());
    for (const auto& member : members)
      keys.emplace_back(std::hash<std::string>()(member.first), &member.first);
    const auto before = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : *a.second < *b.second;
    };
    std::sort(keys.begin(), keys.end(), before);
    for (size_t i = 1; i < keys.size(); ++i)
      if (keys[i].first == keys[i - 1].first && *keys[i].second == *keys[i - 1].second)
        twice(*keys[i].second);
  }

  std::string string() {
    ++at_;
    std::string out;
    bool reserved = false;  // once: that looks through all of the rest
    for (;;) {
      const size_t start = at_;
      bool ascii = true;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') {
        const auto byte = static_cast<unsigned char>(text_[at_]);
        if (byte < 0x20) refuse("a control character in a string must be escaped");
        ascii &= byte < 0x80;
        ++at_;
      }
      const std::string_view run = text_.substr(start, at_ - start);
      if (!ascii)
        if (const size_t valid = valid_utf8_prefix(run); valid < run.size()) {
          at_ = start + valid;
          refuse("a string must be UTF-8");
        }
      out += run;
      if (take('"')) return out;
      if (at_ == text_.size()) refuse("a string does not end");
      if (out.size() >= kLongString && !std::exchange(reserved, true))
        out.reserve(out.size() + bytes_to_quote());
      escape(out);
    }
  }

  // As many as the rest of a string can have: escapes are longer than what they mean. To grow a long string
  // by and by would copy it, and take half of its memory again.
  size_t bytes_to_quote() const {
    size_t end = at_;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    return std::min(end, text_.size()) - at_;
  }

  void escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (const size_t index = kNames.find(peek()); index != std::string_view::npos) {
      out += kMeanings[index];
      ++at_;
      return;
    }
    if (!take('u')) refuse("unknown escape in a string");
    char32_t value = hex4();
    if (value >= 0xD800 && value < 0xDC00) {
      const bool pair = text_.substr(at_).starts_with("\\u");
      at_ += pair ? 2 : 0;
      const char32_t low = pair ? hex4() : 0;
      if (low < 0xDC00 || low >= 0xE000) refuse("half a surrogate pair in a string");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    } else if (value >= 0xDC00 && value < 0xE000) {
      refuse("half a surrogate pair in a string");
    }
    append_utf8(out, value);
  }

  char32_t hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4)
      refuse("\\u needs four hexadecimal digits");
    at_ += 4;
    return value;
  }

  void digits() {
    if (!is_digit(peek())) refuse_text();
    while (is_digit(peek())) ++at_;
  }

  Json number() {
    const size_t start = at_;
    bool whole = true;
    if (take('-') && peek() == ' ') {  // YAML's lists
      at_ = start;
      refuse_text();
    }
    if (!take('0')) digits();
    if (take('.')) {
      whole = false;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      digits();
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    if (int64_t value = 0; whole && std::from_chars(first, last, value).ec == std::errc()) return Json(value);
    double value = 0;
    if (std::from_chars(first, last, value).ec == std::errc()) return Json(value);
    value = std::strtod(std::string(first, last).c_str(), nullptr);  // of numbers too small, what is nearest
    if (!std::isfinite(value)) refuse("a number is too large");
    return Json(value);
  }

  std::string_view text_, where_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, std::string_view where) { return Parser(text, where).run(); }

Json Json::parse_file(const std::string& path) {
  const std::string text = read_file(path, kLongestText);
  if (text.starts_with("version https://git-lfs"))
    fail("[{}] is a Git LFS pointer, expected the file itself; run `git lfs pull` in its folder", path);
  if (text.empty()) fail("[{}] is empty, expected JSON; download or write it again", path);
  return parse(text, path);
}

}  // namespace temper
