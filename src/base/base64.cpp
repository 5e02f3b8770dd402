#include "base/base64.h"

#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/shown.h"

namespace temper {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kNone = -1;

constexpr std::array<int8_t, 256> values_of_digits() {
  std::array<int8_t, 256> values{};
  values.fill(kNone);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}

constexpr std::array<int8_t, 256> kValues = values_of_digits();

// What may stand behind the last digit.
void check_rest(std::string_view text, size_t at) {
  for (; at < text.size(); ++at)
    if (text[at] != '=' && text[at] != '\n' && text[at] != '\r')
      fail("character {} of the base64 is '{}', expected a letter, a digit, + or /", at + 1,
           shown(text.substr(at, 1)));
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t three = 0;
    for (size_t i = 0; i < 3; ++i)
      three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i) out += at + i > bytes.size() ? '=' : kDigits[three >> (18 - 6 * i) & 63];
  }
  return out;
}

std::string decode_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  size_t digits = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const int value = kValues[static_cast<unsigned char>(text[at])];
    if (value == kNone) {
      if (text[at] == '\n' || text[at] == '\r') continue;
      check_rest(text, at);
      break;
    }
    ++digits;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  if (digits % 4 == 1)
    fail("the base64 has {} digits, one more than a multiple of 4; it was cut off", digits);
  return out;
}

std::string decode_base64(std::string_view text, std::string_view place) {
  try {
    return decode_base64(text);
  } catch (const Error& error) {
    fail("{}: {}", place, error.what());
  }
}

}  // namespace temper
