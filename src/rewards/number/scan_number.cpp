#include "rewards/number/scan_number.h"

#include <array>
#include <charconv>

namespace temper::rewards {
namespace {

constexpr int64_t kMostDigits = 1000, kMostExponent = 1000;

// Digits and a power of ten.
struct Decimal {
  std::string digits = {};
  int64_t exponent = 0;
  bool whole = true;  // digits alone
  bool has_value = true;
};

std::optional<Rational> value_of(const Decimal& decimal) {
  if (!decimal.has_value) return std::nullopt;
  const Natural digits(decimal.digits);
  if (decimal.exponent >= 0) return Rational{false, digits * Natural::power_of_ten(decimal.exponent)};
  return Rational{false, digits, Natural::power_of_ten(-decimal.exponent)};
}

// Goes over the text; each step moves behind what it found, or stays where it is and says so.
class Scanner {
 public:
  Scanner(std::string_view text, size_t at) : text_(text), at_(at) {}

  std::optional<ScannedNumber> number() {
    bool negative = false;
    const bool is_signed = sign(negative);
    if (currency() && !is_signed) sign(negative);
    std::optional<Rational> value;
    if (!fraction_command(value) && !digits_and_more(value)) return std::nullopt;
    const bool is_percent = percent();
    if (!value) return ScannedNumber{at_};
    if (negative) value->negative = !value->negative;
    return ScannedNumber{at_, Number{*value, is_percent}};
  }

 private:
  bool skip(std::string_view part) {
    if (!text_.substr(at_).starts_with(part)) return false;
    at_ += part.size();
    return true;
  }
  template <size_t N>
  bool skip_one_of(const std::array<std::string_view, N>& parts) {
    for (const std::string_view part : parts)
      if (skip(part)) return true;
    return false;
  }
  void spaces() {
    while (skip(" ")) {
    }
  }
  bool digit_at(size_t at) const { return at < text_.size() && is_digit(text_[at]); }

  bool sign(bool& negative) {
    negative = skip("-") || skip("\u2212");
    return negative || skip("+");
  }
  bool currency() { return skip_one_of<4>({"\\$", "$", "€", "£"}); }
  bool percent() {
    const size_t before = at_;
    spaces();
    if (skip("\\%") || skip("%")) return true;
    if (at_ > before && skip("percent") && !(at_ < text_.size() && is_letter(text_[at_]))) return true;
    at_ = before;
    return false;
  }

  // 1,234,567.89: all that looks like it is taken, and has a value when its commas and its point are in
  // place.
  bool digits(Decimal& out) {
    const bool begins = digit_at(at_) || (at_ < text_.size() && text_[at_] == '.' && digit_at(at_ + 1));
    if (!begins) return false;
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (digit_at(at_) || ((text_[at_] == '.' || text_[at_] == ',') && digit_at(at_ + 1))))
      ++at_;
    std::string_view written = text_.substr(begin, at_ - begin);
    const size_t point = written.find('.');
    if (point != std::string_view::npos) {
      const std::string_view decimals = written.substr(point + 1);
      out.has_value = decimals.find_first_of(".,") == std::string_view::npos;
      out.exponent = -static_cast<int64_t>(decimals.size());
      out.whole = false;
    }
    const std::string_view whole = written.substr(0, point);
    out.has_value = out.has_value && groups_are_right(whole) && std::ssize(written) <= kMostDigits;
    for (const char c : written)
      if (is_digit(c)) out.digits += c;
    return true;
  }
  static bool groups_are_right(std::string_view whole) {
    if (whole.find(',') == std::string_view::npos) return true;
    if (whole.find(',') > 3 || whole.front() == '0') return false;
    for (size_t at = whole.find(','); at < whole.size(); at += 4)
      if (whole[at] != ',' || whole.substr(at + 1, 3).find(',') != std::string_view::npos ||
          whole.size() - at < 4)
        return false;
    return true;
  }

  // Of e-3 and \times 10^{-3}.
  void exponent(Decimal& out) {
    const size_t before = at_;
    const bool written_e = skip("e") || skip("E");
    bool braced = false;
    if (!written_e) {
      spaces();
      if (!skip_one_of<6>({"\\times", "\\cdot", "×", "·", "*", "x"})) return back_to(before);
      spaces();
      if (!skip("10^")) return back_to(before);
      braced = skip("{");
    }
    bool negative = false;
    sign(negative);
    const size_t begin = at_;
    while (digit_at(at_)) ++at_;
    const std::string_view written = text_.substr(begin, at_ - begin);
    if (written.empty() || (braced && !skip("}")) || (at_ < text_.size() && is_letter(text_[at_])))
      return back_to(before);
    int64_t exponent = 0;
    const auto [unused, error] = std::from_chars(written.data(), written.data() + written.size(), exponent);
    out.whole = false;
    if (error != std::errc() || exponent > kMostExponent)
      out.has_value = false;
    else
      out.exponent += negative ? -exponent : exponent;
  }
  void back_to(size_t before) { at_ = before; }

  bool decimal(Decimal& out) {
    if (!digits(out)) return false;
    exponent(out);
    return true;
  }

  // One part of \frac: {-12.5}, or a single digit.
  bool part(std::optional<Rational>& value) {
    spaces();
    bool negative = false;
    Decimal out;
    if (skip("{")) {
      spaces();
      sign(negative);
      if (!decimal(out)) return false;
      spaces();
      if (!skip("}")) return false;
    } else {
      if (!digit_at(at_)) return false;
      out.digits = text_[at_++];
    }
    value = value_of(out);
    if (value) value->negative = negative;
    return true;
  }

  bool fraction_command(std::optional<Rational>& value) {
    const size_t before = at_;
    std::optional<Rational> top, bottom;
    if (skip_one_of<4>({"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"}) && part(top) && part(bottom)) {
      value = quotient(top, bottom);
      return true;
    }
    at_ = before;
    return false;
  }
  static std::optional<Rational> quotient(const std::optional<Rational>& top,
                                          const std::optional<Rational>& bottom) {
    if (!top || !bottom || bottom->top.is_zero()) return std::nullopt;
    return *top / *bottom;
  }

  bool digits_and_more(std::optional<Rational>& value) {
    Decimal first;
    if (!decimal(first)) return false;
    value = value_of(first);
    const size_t before = at_;
    std::optional<Rational> other;
    spaces();
    if (first.whole && fraction_command(other)) {
      value = value && other && !other->negative ? std::optional(*value + *other) : std::nullopt;
      return true;
    }
    if (first.whole && at_ > before && simple_fraction(other)) {
      value = value && other ? std::optional(*value + *other) : std::nullopt;
      return true;
    }
    at_ = before;
    below_the_line(value);
    return true;
  }

  // Of 1/2 behind a whole number and a space.
  bool simple_fraction(std::optional<Rational>& value) {
    Decimal top, bottom;
    if (!digits(top) || !top.whole || !skip("/") || !digits(bottom) || !bottom.whole) return false;
    value = quotient(value_of(top), value_of(bottom));
    return true;
  }

  void below_the_line(std::optional<Rational>& value) {
    const size_t before = at_;
    spaces();
    Decimal bottom;
    if (skip("/")) {
      spaces();
      if (decimal(bottom)) {
        value = quotient(value, value_of(bottom));
        return;
      }
    }
    at_ = before;
  }

  std::string_view text_;
  size_t at_;
};

}  // namespace

std::optional<ScannedNumber> scan_number(std::string_view text, size_t at) {
  return Scanner(text, at).number();
}

}  // namespace temper::rewards
