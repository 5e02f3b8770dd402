#include "tokenizers/text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"
#include "tokenizers/unicode/characters.h"
#include "tokenizers/unicode/nfc.h"

namespace temper::tokenizers {
namespace {

int options_of(Form form) {
  const bool composes = form == Form::kNfc || form == Form::kNfkc;
  const bool compatible = form == Form::kNfkc || form == Form::kNfkd;
  return UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
         (compatible ? UTF8PROC_COMPAT : 0);
}

char32_t first_of_decomposition(char32_t c) {
  utf8proc_int32_t parts[32] = {};
  int last_class = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &last_class);
  return count > 0 && count <= 32 ? static_cast<char32_t>(parts[0]) : c;
}

// Whether composition may join this character to the one before it: marks, vowels and finals of Hangul, and
// the Kirat Rai vowel signs. All else begins a group that is normalized on its own.
bool may_join(char32_t c) {
  if (c < 0x300) return false;
  c = first_of_decomposition(c);
  return is_mark(c) || (c >= 0x1161 && c <= 0x11FF) || (c >= 0x16D63 && c <= 0x16D6A);
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

// Of forms other than C only texts without any character that could change are known: those below U+00C0
// never change in form D.
size_t UnicodeForm::unchanged_prefix(std::string_view text) const {
  if (form_ == Form::kNfc) return composed_prefix(text);
  const int first = form_ == Form::kNfd ? 0xC3 : 0x80;
  const bool normal =
      std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) < first; });
  return normal ? text.size() : 0;
}

std::string UnicodeForm::normalize(std::string_view text) const {
  std::string out;
  if (form_ == Form::kNfc) {
    append_composed(out, text);
    return out;
  }
  if (unchanged_prefix(text) == text.size()) return std::string(text);
  append_known(out, text, options_of(form_));
  return out;
}

AlignedText UnicodeForm::normalize_aligned(std::string_view text) const {
  const std::string normal = normalize(text);
  if (normal == text) return {normal, Alignment(text.size())};
  TextRewriter groups(text, true);
  size_t same = 0;
  while (groups.rest().size() > same) {
    if (const size_t more = form_ == Form::kNfc ? composed_prefix(groups.rest().substr(same)) : 0; more > 0) {
      same += more;
      continue;
    }
    const std::string_view group = groups.rest().substr(same, group_size(groups.rest().substr(same)));
    const std::string own = normalize(group);
    if (own == group) {
      same += group.size();
      continue;
    }
    groups.keep(same);
    groups.replace(group.size(), own);
    same = 0;
  }
  AlignedText aligned = groups.finish();
  if (aligned.text == normal) return aligned;
  TextRewriter whole(text, true);  // groups influenced each other: all comes from all
  whole.replace(text.size(), normal);
  return whole.finish();
}

}  // namespace temper::tokenizers
