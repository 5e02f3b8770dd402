#include "base/shown.h"

#include <fmt/core.h>

#include "base/utf8.h"

namespace temper {
namespace {

constexpr size_t kLongestMessage = 32 << 10, kKeptOfMessage = 8 << 10;  // bytes

// Directions that are embedded, overridden or isolated, and their ends (Unicode's annex 9).
bool reorders(char32_t value) {
  return (value >= 0x202A && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069);
}

bool is_control(char32_t value) {
  return (value < 0x20 && value != '\n' && value != '\t') || (value >= 0x7F && value < 0xA0);
}

std::string spelled(const Utf8Step& step, std::string_view bytes) {
  if (step.kind == Utf8Kind::kValid && step.value == '\r') return "\\r";
  if (step.kind == Utf8Kind::kValid && step.value >= 0x80)
    return fmt::format("\\u{:04x}", static_cast<uint32_t>(step.value));
  std::string out;
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    const std::string_view bytes = text.substr(0, step.size);
    const bool harmless = step.kind == Utf8Kind::kValid && !is_control(step.value) && !reorders(step.value);
    if (harmless)
      out += bytes;
    else
      out += spelled(step, bytes);
    text.remove_prefix(step.size);
  }
  return out;
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  return std::string(text.substr(0, most)) + "…";
}

std::string shown_message(std::string_view text) {
  if (text.size() <= kLongestMessage) return shown(text);
  size_t begin = kKeptOfMessage, end = text.size() - kKeptOfMessage;
  while ((text[begin] & 0xC0) == 0x80 && begin > 0) --begin;  // whole characters
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return fmt::format("{} … ({} bytes are left out) … {}", shown(text.substr(0, begin)), end - begin,
                     shown(text.substr(end)));
}

}  // namespace temper
