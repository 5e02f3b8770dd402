#include "tokenizers/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/component.h"

namespace temper::tokenizers {
namespace {

// Characters below U+0300 (lead bytes below 0xCC) never change in form C.
bool surely_composed(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0xCC;
  });
}

// Marks that Unicode 10 and later gave a combining class or a composition, for which the tables of the
// `tokenizers` library (Unicode 9) have none: there they neither move nor compose.
constexpr std::pair<char32_t, char32_t> kNewerMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

bool is_newer_mark(char32_t c) {
  if (c < kNewerMarks[0].first) return false;
  const auto* range = std::upper_bound(std::begin(kNewerMarks), std::end(kNewerMarks), c,
                                       [](char32_t value, const auto& entry) { return value < entry.first; });
  return range != std::begin(kNewerMarks) && c <= std::prev(range)->second;
}

void append_composed(std::string& out, std::string_view text) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("[normalizer] a text of {} bytes: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace

Normalizer Normalizer::from_json(const Json& json, std::string_view where) {
  Normalizer normalizer;
  for_each_component(json, "normalizers", where, [&](const Json& component, const std::string& place) {
    const std::string& type = component_type(component, place);
    if (type != "NFC") refuse_component(place, type, "NFC, Sequence");
    normalizer.nfc_ = true;
  });
  return normalizer;
}

std::string Normalizer::normalize(std::string_view text) const {
  if (!nfc_ || surely_composed(text)) return std::string(text);
  std::string out;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (is_newer_mark(step.value)) {
      if (done < at) append_composed(out, text.substr(done, at - done));
      out += text.substr(at, step.size);
      done = at + step.size;
    }
    at += step.size;
  }
  if (done < text.size()) append_composed(out, text.substr(done));
  return out;
}

}  // namespace temper::tokenizers
