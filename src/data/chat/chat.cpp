#include "data/chat/chat.h"

#include "base/error.h"
#include "data/chat/marked_turns.h"
#include "data/chat/messages.h"
#include "data/chat/turns.h"
#include "templates/messages.h"

namespace temper::data {
std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(templates::kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(templates::kWhiteSpace) - begin + 1);
}

RenderedChat render_whole(const Json::Array& messages, bool as_prompt, const Json& extra,
                          const ChatRenderer& render) {
  for (size_t turn = 0; turn < messages.size() && !as_prompt; ++turn)
    if (!is_trained(messages[turn], turn))
      fail("messages[{}].weight is 0, but with loss: all every token is a target", turn);
  return render(messages, as_prompt, extra);
}

std::optional<size_t> answer_in(std::string_view text, size_t turn, const Json::Array& messages,
                                const Json& extra, const ChatRenderer& render) {
  try {
    const std::string prompt = render(first_messages(messages, turn), true, extra).text;
    if (text.starts_with(prompt)) return prompt.size();
  } catch (const Error&) {  // no prompt that a model could be asked with
  }
  return std::nullopt;
}

std::vector<size_t> answers_in(std::string_view text, const Json::Array& messages, const Json& extra,
                               const ChatRenderer& render) {
  std::vector<size_t> answers;
  for (size_t turn = 0; turn < messages.size(); ++turn)
    if (const auto answer =
            is_assistant(messages[turn]) ? answer_in(text, turn, messages, extra, render) : std::nullopt)
      answers.push_back(*answer);
  return answers;
}

std::vector<ChatText> render_chat(const Json::Array& messages, size_t first_turn, const Json& extra,
                                  const ChatRenderer& render, const EndCheck& has_end, RenderedChat whole) {
  if (!whole.generation_spans.empty())
    return MarkedTurns(messages, extra, render).texts_from(first_turn, whole);
  std::vector<size_t> turns;
  for (size_t turn = first_turn; turn < messages.size(); ++turn)
    if (is_assistant(messages[turn]) && is_trained(messages[turn], turn)) turns.push_back(turn);
  std::vector<ChatText> texts = TurnFinder(messages, extra, render, has_end).texts_of(turns, whole);
  if (texts.empty()) texts.push_back({std::move(whole.text)});
  return texts;
}

}  // namespace temper::data
