#include "tokenizers/unicode/character_classes.h"

#include <algorithm>

#include "tokenizers/unicode/unicode_classes.h"

namespace temper::tokenizers {
namespace {

CodePointTable classify() {
  std::vector<uint8_t> values(kCodePoints, 0);
  const std::span<const uint32_t> runs = unicode_class_runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : kCodePoints;
    std::fill(values.begin() + (runs[i] >> 8), values.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<uint8_t>(runs[i] & 0xFF));
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
