#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rewards/number/read_number.h"

namespace temper::rewards {

// A text without what LaTeX says of spaces, sizes and fonts of a number: \left, \right, \displaystyle and \!
// go, other spaces become ' '; {,} and \, between digits become ','.
std::string plain_latex(std::string_view text);

struct ScannedNumber {
  size_t end = 0;                     // bytes; behind the number
  std::optional<Number> number = {};  // none: it has no value (read_number.h)
};
// The number that begins at byte `at` of a text that plain_latex() made, if one does.
std::optional<ScannedNumber> scan_number(std::string_view text, size_t at);

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace temper::rewards
