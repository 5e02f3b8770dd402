#include "rewards/number/read_number.h"

#include <array>
#include <utility>

#include "rewards/number/scan_number.h"
#include "rewards/number/units.h"

namespace temper::rewards {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool take_around(std::string_view& text, std::string_view begin, std::string_view end) {
  if (text.size() < begin.size() + end.size() || !text.starts_with(begin) || !text.ends_with(end))
    return false;
  const std::string_view inner = text.substr(begin.size(), text.size() - begin.size() - end.size());
  // {1}+{2} begins and ends with braces, but they are not around it.
  if (end.ends_with('}') && inner.find('}') < inner.find('{')) return false;
  text = inner;
  return true;
}

// Takes off one layer of what stands around a number.
bool take_layer(std::string_view& text) {
  using Around = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Around, 15> kAround{{{"$$", "$$"},
                                            {"$", "$"},
                                            {"\\(", "\\)"},
                                            {"\\[", "\\]"},
                                            {"{", "}"},
                                            {"**", "**"},
                                            {"*", "*"},
                                            {"`", "`"},
                                            {"\\text{", "}"},
                                            {"\\textbf{", "}"},
                                            {"\\textrm{", "}"},
                                            {"\\mathrm{", "}"},
                                            {"\\mathbf{", "}"},
                                            {"\\boldsymbol{", "}"},
                                            {"\\mbox{", "}"}}};
  const size_t before = text.size();
  text = trim(text);
  for (const auto& [begin, end] : kAround)
    if (take_around(text, begin, end)) return true;
  if (text.ends_with('.')) text.remove_suffix(1);
  return text.size() < before;
}

// What stands behind the last "=" of an equation; none where that says something else (<=, !=).
std::optional<std::string_view> right_side(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) return text;
  if (equals > 0 && std::string_view("<>!=").find(text[equals - 1]) != std::string_view::npos)
    return std::nullopt;
  return text.substr(equals + 1);
}

// Whether what stands before a number makes it a part of something: x1, a_1, 2^{10}, but not \approx5.
bool is_part(std::string_view before) {
  if (before.ends_with('{')) before.remove_suffix(1);
  if (before.ends_with('^') || before.ends_with('_')) return true;
  size_t letters = before.size();
  while (letters > 0 && is_letter(before[letters - 1])) --letters;
  return letters < before.size() && (letters == 0 || before[letters - 1] != '\\');
}

bool is_under_root(std::string_view before) {
  return before.ends_with("\\sqrt{") || before.ends_with("\\sqrt") || before.ends_with("√");
}

// Whether a sign that stands here is an operator: 10-3.
bool is_operator(std::string_view before) {
  if (before.empty()) return false;
  const char last = before.back();
  return is_digit(last) || is_letter(last) || last == ')' || last == '}' || last == ']' || last == '%';
}

bool may_begin(char c) {
  return is_digit(c) || c == '.' || c == '-' || c == '+' || c == '\\' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

std::optional<Number> whole_number(std::string_view written) {
  const std::string plain = plain_latex(written);
  std::string_view text = plain;
  while (take_layer(text)) {
  }
  const std::optional<std::string_view> right = right_side(text);
  if (!right) return std::nullopt;
  text = *right;
  while (take_layer(text)) {
  }
  const std::optional<ScannedNumber> found = scan_number(text, 0);
  if (!found || !is_unit(text.substr(found->end))) return std::nullopt;
  return found->number;
}

std::optional<Number> last_number(std::string_view written) {
  const std::string text = plain_latex(written);
  const std::string_view view = text;
  std::optional<Number> last;
  for (size_t at = 0; at < text.size();) {
    const std::string_view before = view.substr(0, at);
    const bool is_sign = text[at] == '-' || text[at] == '+' || view.substr(at).starts_with("\u2212");
    std::optional<ScannedNumber> found;
    if (may_begin(text[at]) && !(is_sign && is_operator(before))) found = scan_number(view, at);
    if (!found) {
      ++at;
      continue;
    }
    const bool behind_power = is_digit(text[at]) || is_sign;
    const bool has_power = found->end < text.size() && text[found->end] == '^' &&
                           !view.substr(found->end).starts_with("^\\circ") &&
                           !view.substr(found->end).starts_with("^{\\circ");
    if (!(behind_power && is_part(before)))
      last = has_power || is_under_root(before) ? std::nullopt : found->number;
    at = found->end;
  }
  return last;
}

bool same_number(const Number& a, const Number& b, const Rational& tolerance) {
  if (differ_at_most(a.value, b.value, tolerance)) return true;
  if (a.percent == b.percent) return false;
  const Rational hundredth{false, Natural("1"), Natural("100")};
  return a.percent ? differ_at_most(a.value * hundredth, b.value, tolerance)
                   : differ_at_most(a.value, b.value * hundredth, tolerance);
}

}  // namespace temper::rewards
