#include "data/chat/picture_parts.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat/messages.h"

namespace temper::data {
namespace {

Json parts_of(std::string_view text) {
  Json::Array parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kPictureMark, begin), text.size());
    if (end > begin)
      parts.emplace_back(
          Json::Object{{"type", "text"}, {"text", std::string(text.substr(begin, end - begin))}});
    if (end < text.size()) parts.emplace_back(Json::Object{{"type", "image"}});
    begin = end + 1;
  }
  return parts;
}

int64_t count(std::string_view text, std::string_view word) {
  int64_t found = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size()))
    ++found;
  return found;
}

}  // namespace

int64_t count_marks(std::string_view text) { return std::count(text.begin(), text.end(), kPictureMark); }

int64_t count_marks(const Json::Array& messages) {
  int64_t marks = 0;
  for (const Json& message : messages) marks += count_marks(text_in(message, "content"));
  return marks;
}

std::vector<std::string_view> texts_between_marks(std::string_view text) {
  std::vector<std::string_view> texts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(kPictureMark, begin), text.size());
    if (end > begin) texts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

ChatRenderer with_picture_parts(ChatRenderer render, std::string pad) {
  return [render = std::move(render), pad = std::move(pad)](const Json& messages, bool add_generation_prompt,
                                                            const Json& extra) {
    const int64_t pictures = count_marks(messages.as_array());
    Json given = messages;
    if (pictures > 0)
      for (Json& message : given.as_array())
        if (const std::string_view text = text_in(message, "content"); count_marks(text) > 0)
          message.set("content", parts_of(text));
    RenderedChat chat = render(given, add_generation_prompt, extra);
    if (const int64_t written = count(chat.text, pad); written != pictures)
      fail(
          "the conversation has {} pictures, and its text has {} {} times; the chat template must write it "
          "once "
          "for each part {{\"type\": \"image\"}}, and texts must not hold it themselves: name pictures by "
          "such "
          "parts, or by <image>",
          pictures, pad, written);
    return chat;
  };
}

}  // namespace temper::data
