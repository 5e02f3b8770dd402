#pragma once
#include <charconv>
#include <optional>
#include <string_view>

namespace temper {

// All of the text as an integer; nothing where it is none, or does not fit.
template <class T>
std::optional<T> parse_integer_of(std::string_view digits, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

}  // namespace temper
