#include "tokenizers/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/characters.h"

namespace temper::tokenizers {
namespace {

// Characters that Unicode 10 and later gave a combining class, a composition or a decomposition, for which
// the tables of the `tokenizers` library (Unicode 9) have none: there they neither move nor change.
constexpr std::pair<char32_t, char32_t> kNewer[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},
    {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC},
    {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool is_newer(char32_t c) {
  if (c < kNewer[0].first) return false;
  const auto* range = std::upper_bound(std::begin(kNewer), std::end(kNewer), c,
                                       [](char32_t value, const auto& entry) { return value < entry.first; });
  return range != std::begin(kNewer) && c <= std::prev(range)->second;
}

utf8proc_option_t options_of(Form form) {
  const bool composes = form == Form::kNfc || form == Form::kNfkc;
  const bool compatible = form == Form::kNfkc || form == Form::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

void append_normal(std::string& out, std::string_view text, Form form) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("[normalizer] a text of {} bytes: {}", text.size(), utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
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

// Characters below U+0300 (lead bytes below 0xCC) never change in form C, those below U+00C0 never in form D.
bool UnicodeForm::surely_normal(std::string_view text) const {
  const int first = form_ == Form::kNfc ? 0xCC : form_ == Form::kNfd ? 0xC3 : 0x80;
  return std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) < first; });
}

std::string UnicodeForm::normalize(std::string_view text) const {
  if (surely_normal(text)) return std::string(text);
  std::string out;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (is_newer(step.value)) {
      if (done < at) append_normal(out, text.substr(done, at - done), form_);
      out += text.substr(at, step.size);
      done = at + step.size;
    }
    at += step.size;
  }
  if (done < text.size()) append_normal(out, text.substr(done), form_);
  return out;
}

AlignedText UnicodeForm::normalize_aligned(std::string_view text) const {
  const std::string normal = normalize(text);
  if (normal == text) return {normal, Alignment(text.size())};
  TextRewriter groups(text, true);
  size_t same = 0;
  while (groups.rest().size() > same) {
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
