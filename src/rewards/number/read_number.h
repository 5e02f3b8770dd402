#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "rewards/number/rational.h"

namespace temper::rewards {

struct Number {
  Rational value;
  bool percent = false;  // a percent sign stood behind it, which has not changed the value
};

// How numbers are written (scan_number.cpp reads one):
//   sign      - + and the minus sign U+2212, before or behind the currency
//   currency  $ \$ € £ before the digits
//   digits    12, 1.5, .5; 1,234,567 with groups of three only, also as 1{,}234 and 1\,234
//   exponent  1.5e-3, 1.5E3, 1.5 \times 10^{-3}; the same with \cdot, ×, ·, *, x
//   fraction  3/4, \frac{3}{4}, \frac34; \dfrac, \tfrac and \cfrac, too
//   mixed     1\frac{1}{2}, 1 1/2
//   percent   %, \% or the word percent behind it
// Has no value: a fraction with zero below the line, digits with commas or points elsewhere (12,34
// and 1.2.3), more than 1000 digits, an exponent beyond ±1000.

// The number that is all of `text`, except what may surround an answer: white space; $…$, $$…$$, \(…\),
// \[…\], {…}, **…**, `…`, \text{…} and other fonts; a full stop at the end; what stands before the last "=";
// a unit (units.h). None for everything else: expressions, powers, roots, intervals, words.
std::optional<Number> whole_number(std::string_view text);

// The last number of `text`. Digits directly behind a letter (x1, H2O) or behind ^ and _ belong to what
// stands there; a minus sign directly behind a letter, a digit or a closing bracket is an operator. None
// where there is no number, where the last one has no value, and where it is raised to a power or under a
// root.
std::optional<Number> last_number(std::string_view text);

// What a solution gives as its result: what stands in its last \boxed{…} (or \fbox{…}), whose braces may be
// nested; or else behind the last ####, up to the line's end. None where it has neither; `unfinished`: where
// the last box is not closed.
struct GivenResult {
  std::optional<std::string> text = {};
  bool unfinished = false;
};
GivenResult given_result(std::string_view text);

// Whether the numbers differ by at most `tolerance`. Where one is a percentage and the other is none, it may
// stand for its hundredth, too: 50% is 50 and 1/2.
bool same_number(const Number& a, const Number& b, const Rational& tolerance);

}  // namespace temper::rewards
