#include "tokenizers/text/precompiled.h"

#include <utf8proc.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

// Longer groups of characters are looked up one by one, as in the `tokenizers` library.
constexpr size_t kLongestGroup = 5;

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// A unit of the double array: a label, whether a value hangs below, and where the children are.
bool has_value(uint32_t unit) { return (unit >> 8) & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

class Precompiled : public NormalizerStep {
 public:
  Precompiled(const std::string& bytes, const std::string& place) {
    const size_t size = bytes.size() >= 4 ? read_u32(bytes, 0) : 0;
    if (bytes.size() < 4 || size % 4 != 0 || size > bytes.size() - 4)
      fail("{} must hold a trie and texts, found {} bytes", place, bytes.size());
    for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(read_u32(bytes, at));
    texts_ = bytes.substr(4 + size);
    if (valid_utf8_prefix(texts_) != texts_.size()) fail("{} must hold texts in UTF-8", place);
  }

  AlignedText run(std::string_view text, bool aligned) const override {
    TextRewriter out(text, aligned);
    while (!out.rest().empty()) {
      const std::string_view group = out.rest().substr(0, group_size(out.rest()));
      if (group.size() <= kLongestGroup)
        if (const auto known = find(group)) {
          out.replace(group.size(), *known);
          continue;
        }
      for (size_t left = group.size(); left > 0;) {
        const std::string_view character = out.rest().substr(0, next_utf8(out.rest()).size);
        left -= character.size();
        if (const auto known = find(character); known && *known != character)
          out.replace(character.size(), *known);
        else
          out.keep(character.size());
      }
    }
    return out.finish();
  }

 private:
  // What user-perceived characters consist of.
  static size_t group_size(std::string_view text) {
    utf8proc_int32_t state = 0;
    Utf8Step step = next_utf8(text);
    size_t size = step.size;
    while (size < text.size()) {
      const Utf8Step next = next_utf8(text.substr(size));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(step.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state))
        break;
      step = next;
      size += step.size;
    }
    return size;
  }

  // The replacement of the shortest key that `key` begins with; what is behind it goes as well.
  std::optional<std::string_view> find(std::string_view key) const {
    if (units_.empty()) return std::nullopt;
    size_t at = offset_of(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      at ^= byte;
      if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
      const uint32_t unit = units_[at];
      at ^= offset_of(unit);
      if (!has_value(unit)) continue;
      if (at >= units_.size()) return std::nullopt;
      return replacement_at(value_of(units_[at]));
    }
    return std::nullopt;
  }

  std::optional<std::string_view> replacement_at(size_t begin) const {
    if (begin > texts_.size()) return std::nullopt;
    const std::string_view text = std::string_view(texts_).substr(begin);
    const std::string_view found = text.substr(0, text.find('\0'));
    if (valid_utf8_prefix(found) != found.size()) return std::nullopt;  // it begins inside a character
    return found;
  }

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace

std::unique_ptr<const NormalizerStep> make_precompiled(const Json& component, const std::string& place) {
  const std::string key = place + ".precompiled_charsmap";
  const std::string& text = as_text(required(component, "precompiled_charsmap", place), key);
  if (text.find_first_of("\r\n") != std::string::npos) fail("{} must be base64 in one line", key);
  return std::make_unique<Precompiled>(decode_base64(text, key), key);
}

}  // namespace temper::tokenizers
