#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace temper::tokenizers {

// The same pattern for PCRE2: tokenizer.json is written for Oniguruma, whose \s, \w, \h, \b, (?m), {n,m}+,
// script properties and nested or intersected classes mean something else. Errors start with `where`.
std::string rewrite_pattern(std::string_view pattern, std::string_view where);

// A compiled pattern; find may be called from several threads at once.
class Pattern {
 public:
  static Pattern regex(std::string_view pattern, std::string_view where);  // Oniguruma's syntax
  static Pattern literal(std::string_view text, std::string_view where);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  struct Match {
    size_t begin, end;
    int group;  // the last one that took part; 0 when there is none
  };
  // The first match at or after `from`; lookbehind sees the text before it. `text` is valid UTF-8.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<const Code> code);
  // `written` is what messages show: the pattern before it was rewritten.
  static Pattern compile(std::string_view pattern, std::string_view written, unsigned options,
                         std::string_view where);
  std::unique_ptr<const Code> code_;
};

}  // namespace temper::tokenizers
