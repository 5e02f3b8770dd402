#include "formats/endings.h"

#include <array>

#include "formats/format.h"

namespace temper::formats {

std::string ending_of(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPackings = {".gz", ".zst", ".zstd"};
  name.remove_prefix(name.rfind('/') + 1);
  std::string lower;
  for (const char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string_view inner = lower;
  for (const std::string_view packing : kPackings)
    if (inner.ends_with(packing)) inner.remove_suffix(packing.size());
  const size_t dot = inner.rfind('.');
  return dot == std::string_view::npos ? std::string() : std::string(inner.substr(dot));
}

bool begins_as_json(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const auto next = [&] {
    const size_t at = text.find_first_not_of(" \t\r\n");
    const char c = at == std::string_view::npos ? '\0' : text[at];
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return c;
  };
  const char first = next();
  if (first == '{') {
    const char second = next();
    return second == '"' || second == '}';
  }
  return first == '[' && next() == '{';
}

}  // namespace temper::formats
