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
  utf8proc_uint8_t* mapped = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("[normalizer] a text of {} bytes: {}", text.size(), utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

AlignedText Normalizer::normalize_aligned(std::string_view text) const {
  AlignedText aligned{normalize(text), Alignment(text.size())};
  if (aligned.text == text) return aligned;
  std::string joined;
  for (size_t source = 0; source < text.size();) {
    const std::string_view group = text.substr(source, group_size(text.substr(source)));
    const std::string normal = normalize(group);
    aligned.alignment.add(joined.size(), source, normal != group);
    joined += normal;
    source += group.size();
  }
  invariant(joined == aligned.text, "normalizing group by group must give what normalizing at once gives");
  return aligned;
}

}  // namespace temper::tokenizers
