#include "data/chat/thinking.h"

#include <mutex>

#include "base/log.h"
#include "data/chat/messages.h"
#include "templates/messages.h"

namespace temper::data {
namespace {

using templates::kThinkingBegin, templates::kThinkingEnd;

std::string_view without_front_space(std::string_view text) {
  const std::string_view trimmed = trim(text);
  return text.substr(trimmed.empty() ? text.size() : static_cast<size_t>(trimmed.data() - text.data()));
}

struct Thinking {
  std::string_view thought;  // without white space around
  std::string until_answer;  // the thought and what separates it from the answer
};

std::optional<Thinking> thinking_of(const Json& message) {
  const std::string_view content = text_in(message, "content");
  if (const auto inside = templates::thinking_inside(content)) {
    const std::string_view thought = content.substr(inside->begin, inside->end - inside->begin);
    const std::string_view answer = without_front_space(content.substr(inside->answer));
    return Thinking{trim(thought), std::string(without_front_space(thought).data(), answer.data())};
  }
  for (const std::string_view field : templates::kReasoningFields)
    if (const std::string_view thought = trim(text_in(message, field)); !thought.empty())
      return Thinking{thought, std::string(thought) + "\n</think>\n\n"};
  return std::nullopt;
}

// What the template wrote between the header of a turn and its words, without thinking that holds nothing.
std::string_view opening_of(std::string_view written) {
  std::string_view rest = without_front_space(written);
  if (rest.starts_with(kThinkingBegin) && trim(rest.substr(kThinkingBegin.size())).starts_with(kThinkingEnd))
    rest = without_front_space(rest.substr(rest.find(kThinkingEnd) + kThinkingEnd.size()));
  return rest;
}

void tell_once() {
  static std::once_flag logged;
  std::call_once(logged, [] {
    log_info(
        "the chat template leaves the thinking out of answers; answers with thinking are trained after its "
        "generation prompt, each as a separate text");
  });
}

}  // namespace

std::optional<RenderedChat> with_left_out_thinking(const Json& message, const RenderedChat& prompt,
                                                   const RenderedChat& until, size_t index) {
  if (until.text.starts_with(prompt.text) || !trim(prompt.text).ends_with(kThinkingBegin))
    return std::nullopt;
  const std::optional<Words> words = words_of(until, index);
  const std::optional<Thinking> thinking = thinking_of(message);
  if (!words || !thinking || thinking->thought.empty()) return std::nullopt;
  for (const templates::Field field : {templates::Field::kReasoning, templates::Field::kSeveral})
    if (bytes_of(until, {index, field}) > 0) return std::nullopt;
  const size_t header = prompt.text.rfind(kThinkingBegin);
  if (!until.text.starts_with(std::string_view(prompt.text).substr(0, header))) return std::nullopt;
  const std::string_view before_words =
      std::string_view(until.text).substr(header, words->around.begin - header);
  tell_once();
  RenderedChat chat = prompt;
  chat.text += thinking->until_answer;
  chat.text += opening_of(before_words);
  chat.text += std::string_view(until.text).substr(words->around.begin);
  const size_t ending = until.text.size() - words->around.end;
  chat.written.push_back(
      {{prompt.text.size(), chat.text.size() - ending}, {index, templates::Field::kSeveral}});
  return chat;
}

}  // namespace temper::data
