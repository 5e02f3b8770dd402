#include "data/chat/words.h"
#include "templates/messages.h"

#include <algorithm>

namespace temper::data {

std::optional<Words> words_of(const RenderedChat& chat, size_t message) {
  std::optional<Words> words;
  for (const Written& part : chat.written) {
    if (part.source.message != message) continue;
    if (!words) words = Words{part.bytes, ""};
    words->around.end = part.bytes.end;
    words->text += chat.text.substr(part.bytes.begin, part.bytes.end - part.bytes.begin);
  }
  return words;
}

size_t bytes_of(const RenderedChat& chat, templates::Source source) {
  size_t count = 0;
  for (const auto& [bytes, from] : chat.written)
    if (from == source)
      count += count_bytes(std::string_view(chat.text).substr(bytes.begin, bytes.end - bytes.begin));
  return count;
}

size_t count_bytes(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return templates::kWhiteSpace.find(c) == std::string_view::npos;
  }));
}

}  // namespace temper::data
