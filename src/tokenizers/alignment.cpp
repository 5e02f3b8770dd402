#include "tokenizers/alignment.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

// Whether composition may join this character to the one before it: marks, vowels and finals of Hangul, and
// the Kirat Rai vowel signs. All else begins a group that is normalized on its own.
bool may_join(char32_t c) {
  if (c < 0x300) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                    category == UTF8PROC_CATEGORY_ME;
  return mark || (c >= 0x1161 && c <= 0x11FF) || (c >= 0x16D63 && c <= 0x16D6A);
}

size_t group_size(std::string_view text) {
  size_t size = next_utf8(text).size;
  while (size < text.size()) {
    const Utf8Step step = next_utf8(text.substr(size));
    if (!may_join(step.value)) break;
    size += step.size;
  }
  return size;
}

}  // namespace

size_t Alignment::part_of(size_t at) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), at,
                                      [](size_t value, const Part& part) { return value < part.begin; });
  return static_cast<size_t>(after - parts_.begin()) - 1;
}

size_t Alignment::source_begin(size_t at) const {
  if (parts_.empty()) return at;
  const Part& part = parts_[part_of(at)];
  return part.changed ? part.source : part.source + (at - part.begin);
}

size_t Alignment::source_end(size_t at) const {
  if (parts_.empty()) return at;
  const size_t index = part_of(at - 1);
  const Part& part = parts_[index];
  if (!part.changed) return part.source + (at - part.begin);
  return index + 1 < parts_.size() ? parts_[index + 1].source : size_;
}

void Alignment::add(size_t begin, size_t source, bool changed) {
  if (parts_.empty() || changed || parts_.back().changed) parts_.push_back({begin, source, changed});
}

AlignedText normalize_aligned(const Normalizer& normalizer, std::string_view text, std::string& buffer) {
  AlignedText aligned{normalizer.normalize(text, buffer), Alignment(text.size())};
  if (aligned.text == text) return aligned;
  std::string joined;
  const auto add = [&](size_t source, std::string_view normal, bool changed) {
    aligned.alignment.add(joined.size(), source, changed);
    joined += normal;
  };
  for (size_t source = 0; source < text.size();) {
    if (const size_t same = normalizer.unchanged_prefix(text.substr(source))) {
      add(source, text.substr(source, same), false);
      source += same;
      continue;
    }
    const std::string_view group = text.substr(source, group_size(text.substr(source)));
    const std::string normal = normalizer.normalize(group);
    add(source, normal, normal != group);
    source += group.size();
  }
  invariant(joined == aligned.text, "normalizing group by group must give what normalizing at once gives");
  return aligned;
}

}  // namespace temper::tokenizers
