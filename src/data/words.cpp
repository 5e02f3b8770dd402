#include "data/words.h"

namespace temper::data {

std::optional<Words> words_of(const RenderedChat& chat, size_t message) {
  std::optional<Words> words;
  for (const Written& part : chat.written) {
    if (part.message != message) continue;
    if (!words) words = Words{part.bytes, ""};
    words->around.end = part.bytes.end;
    words->text += chat.text.substr(part.bytes.begin, part.bytes.end - part.bytes.begin);
  }
  return words;
}

}  // namespace temper::data
