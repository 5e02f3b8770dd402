#include <algorithm>

#include "rewards/number/read_number.h"

namespace temper::rewards {
namespace {

constexpr std::string_view kLine = "####";

// Where the last box's content begins: behind its brace.
size_t last_box(std::string_view text) {
  for (size_t from = std::string_view::npos;;) {
    const size_t boxed = text.rfind("\\boxed", from), fbox = text.rfind("\\fbox", from);
    const size_t found = boxed == std::string_view::npos  ? fbox
                         : fbox == std::string_view::npos ? boxed
                                                          : std::max(boxed, fbox);
    if (found == std::string_view::npos) return found;
    const size_t brace = text.find_first_not_of(' ', found + (found == boxed ? 6 : 5));
    if (brace != std::string_view::npos && text[brace] == '{') return brace + 1;
    if (found == 0) return std::string_view::npos;
    from = found - 1;
  }
}

size_t closing_brace(std::string_view text, size_t at) {
  for (int depth = 1; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;  // \{ and \} are characters
    else if (text[at] == '{')
      ++depth;
    else if (text[at] == '}' && --depth == 0)
      return at;
  }
  return std::string_view::npos;
}

}  // namespace

GivenResult given_result(std::string_view text) {
  if (const size_t begin = last_box(text); begin != std::string_view::npos) {
    const size_t end = closing_brace(text, begin);
    if (end == std::string_view::npos) return {.unfinished = true};
    return {.text = std::string(text.substr(begin, end - begin))};
  }
  const size_t line = text.rfind(kLine);
  if (line == std::string_view::npos) return {};
  const std::string_view behind = text.substr(line + kLine.size());
  return {.text = std::string(behind.substr(0, behind.find('\n')))};
}

}  // namespace temper::rewards
