#include "tokenizers/character_classes.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizers/pattern.h"

namespace temper::tokenizers {
namespace {

// The n-th group is the n-th class.
constexpr std::string_view kClasses =
    R"(([\p{Lu}\p{Lt}]+)|(\p{Ll}+)|([\p{Lm}\p{Lo}]+)|(\p{M}+)|(\p{N}+)|([\p{P}\p{S}]+)|(\s+))";

// Planes 4 to 13 are not assigned, 15 and 16 are for private use: their characters have no class.
constexpr std::pair<char32_t, char32_t> kAssigned[] = {
    {0, 0xD800}, {0xE000, 0x40000}, {0xE0000, 0xF0000}};

CodePointTable classify() {
  const Pattern pattern = Pattern::regex(kClasses, "character_classes");
  std::vector<uint8_t> values(kCodePoints, 0);
  for (const auto& [first, end] : kAssigned) {
    std::string text;
    for (char32_t c = first; c < end; ++c) append_utf8(text, c);
    char32_t c = first;
    size_t at = 0;
    const auto skip_to = [&](size_t end_at, uint8_t value) {
      for (; at < end_at; at += utf8_size(text[at])) values[c++] = value;
    };
    while (const auto match = pattern.find(text, at)) {
      skip_to(match->begin, 0);
      skip_to(match->end, static_cast<uint8_t>(1u << (match->group - 1)));
    }
  }
  values['\r'] = values['\n'] = kSpace | kNewline;
  return CodePointTable(values);
}

}  // namespace

const CodePointTable& character_classes() {
  static const CodePointTable table = classify();
  return table;
}

}  // namespace temper::tokenizers
