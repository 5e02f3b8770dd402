#include "tokenizers/unicode/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/unicode/characters.h"
#include "tokenizers/unicode/code_point_table.h"

namespace temper::tokenizers {
namespace {

constexpr int kComposes = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

void append_mapped(std::string& out, std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("[normalizer] a text of {} bytes: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

// Whether a character begins what is normalized on its own, and does not change: it has no canonical
// decomposition, or one that composes again, and no composition takes it as its second (marks, vowels and
// finals of Hangul, Kirat Rai).
bool is_stable(char32_t c) {
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (is_mark(c) || (c >= 0x1161 && c <= 0x11FF) || (c >= 0x16D63 && c <= 0x16D6A)) return false;
  if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) return true;
  std::string text, composed;
  append_utf8(text, c);
  append_mapped(composed, text, kComposes);
  return composed == text;
}

const CodePointTable& stable_characters() {
  static const CodePointTable table = [] {
    std::vector<uint8_t> values(kCodePoints, 1);
    for (char32_t c = 0x300; c < kCodePoints; ++c) values[c] = is_stable(c);
    return CodePointTable(values);
  }();
  return table;
}

// Where the first character that may change begins; those below U+0300 (lead bytes below 0xCC) never do.
size_t stable_prefix(std::string_view text) {
  size_t at = 0;
  const auto skip_low = [&] {
    while (at < text.size() && static_cast<unsigned char>(text[at]) < 0xCC) ++at;
    return at == text.size();
  };
  if (skip_low()) return at;
  const CodePointTable& stable = stable_characters();
  while (!skip_low()) {
    const Utf8Step step = valid_utf8(text.data() + at);
    if (!stable[step.value]) break;
    at += step.size;
  }
  return at;
}

// Where the characters that belong to the first one end.
size_t joined_size(std::string_view text) {
  const CodePointTable& stable = stable_characters();
  size_t at = utf8_size(text[0]);
  while (at < text.size() && !stable[valid_utf8(text.data() + at).value]) at += utf8_size(text[at]);
  return at;
}

}  // namespace

void append_known(std::string& out, std::string_view text, int options) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (is_newer(step.value)) {
      if (done < at) append_mapped(out, text.substr(done, at - done), options);
      out += text.substr(at, step.size);
      done = at + step.size;
    }
    at += step.size;
  }
  if (done < text.size()) append_mapped(out, text.substr(done), options);
}

size_t composed_prefix(std::string_view text) {
  const size_t stable = stable_prefix(text);
  if (stable == text.size() || stable == 0) return stable;
  return stable - last_utf8(text.substr(0, stable)).size();  // what follows may compose with the last one
}

void append_composed(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const size_t stable = composed_prefix(text);
    out += text.substr(0, stable);
    text.remove_prefix(stable);
    if (text.empty()) return;
    const size_t size = joined_size(text);
    append_known(out, text.substr(0, size), kComposes);
    text.remove_prefix(size);
  }
}

}  // namespace temper::tokenizers
