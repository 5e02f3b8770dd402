#include "rewards/judged_text.h"

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"

namespace temper::rewards {
namespace {

bool is_white_space(std::string_view character) {
  const char32_t c = valid_utf8(character.data()).value;
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty()) {
    const std::string_view last = last_utf8(text);
    if (!is_white_space(last)) break;
    text.remove_suffix(last.size());
  }
  while (!text.empty()) {
    const std::string_view first = text.substr(0, utf8_size(text.front()));
    if (!is_white_space(first)) break;
    text.remove_prefix(first.size());
  }
  return text;
}

std::optional<std::string> judged_text(const RewardConfig& config, const std::string& text) {
  if (!config.text.within) return replace_invalid_utf8(text);
  const std::string opening = fmt::format("<{}>", *config.text.within),
                    closing = fmt::format("</{}>", *config.text.within);
  const size_t end = text.rfind(closing);
  if (end == std::string::npos || end < opening.size()) return std::nullopt;
  const size_t begin = text.rfind(opening, end - opening.size());
  if (begin == std::string::npos) return std::nullopt;
  return replace_invalid_utf8(text.substr(begin + opening.size(), end - begin - opening.size()));
}

bool is_tag_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\r\n<>/") == std::string_view::npos;
}

void check_within(const RewardConfig& config, const std::string& key) {
  if (config.text.within && !is_tag_name(*config.text.within))
    fail("[{}.within] '{}' is not a tag; write its name without angle brackets, for example answer", key,
         *config.text.within);
}

}  // namespace temper::rewards
