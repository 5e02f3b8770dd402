#include "base/utf8.h"

#include <array>

#include "base/text.h"

namespace temper {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// How a lead byte continues: sequence length (0 = never valid) and the range of the second byte.
struct Lead {
  size_t length;
  unsigned char low = 0x80, high = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {Utf8Kind::kValid, 1, first};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1, kReplacement};
  char32_t value = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i, kReplacement};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kInvalid, i, kReplacement};
    value = (value << 6) | (byte & 0x3F);
  }
  return {Utf8Kind::kValid, lead.length, value};
}

std::string_view last_utf8(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return text.substr(start);
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | ((value >> shift) & 0x3F)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) return put(0xC0 | (value >> 6)), tail(0);
  if (value < 0x10000) return put(0xE0 | (value >> 12)), tail(6), tail(0);
  put(0xF0 | (value >> 18)), tail(12), tail(6), tail(0);
}

std::u32string to_utf32(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    out += step.value;
    text.remove_prefix(step.size);
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t value : text) append_utf8(out, value);
  return out;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return out;
    append_utf8(out, kReplacement);
    text.remove_prefix(next_utf8(text).size);
  }
}

}  // namespace temper
