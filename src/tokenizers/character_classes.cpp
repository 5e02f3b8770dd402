#include "tokenizers/character_classes.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizers/pattern.h"

namespace temper::tokenizers {
namespace {

// One group for each of kClasses; the longest runs come first, and of these those without a class.
constexpr std::string_view kRuns =
    R"((\p{Lo}+)|(\p{Cn}+)|(\p{Co}+)|(\p{S}+)|(\p{M}+)|(\p{Ll}+)|(\p{Lu}+)|(\p{N}+)|(\p{P}+)|(\p{Lm}+)|(\p{Lt}+)|(\s+))";
constexpr uint8_t kClasses[] = {0,      kCaseless, 0,       0,         kSymbol, kMark, kLower,
                                kUpper, kNumber,   kSymbol, kCaseless, kUpper,  kSpace};

// Planes 4 to 13 are not assigned, 15 and 16 are for private use: their characters have no class.
constexpr std::pair<char32_t, char32_t> kAssigned[] = {{0, 0xD800}, {0xE000, 0x40000}, {0xE0000, 0xF0000}};

CodePointTable classify() {
  const Pattern pattern = Pattern::regex(kRuns, "character_classes");
  std::vector<uint8_t> values(kCodePoints, 0);
  for (const auto& [first, end] : kAssigned) {
    std::string text;
    text.reserve(size_t{4} * (end - first));
    for (char32_t c = first; c < end; ++c) append_utf8(text, c);
    for (auto match = pattern.find(text, 0); match; match = pattern.find(text, match->end)) {
      const std::string_view run = std::string_view(text).substr(match->begin, match->end - match->begin);
      std::fill(values.begin() + next_utf8(run).value, values.begin() + next_utf8(last_utf8(run)).value + 1,
                kClasses[match->group]);
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
