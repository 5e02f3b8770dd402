#include "data/chat.h"

#include <algorithm>

#include "base/error.h"
#include "data/turns.h"

namespace temper::data {
namespace {

bool is_assistant(const Json& message) { return message.at("role") == Json("assistant"); }

// Messages may say with a weight of 0 that they are not to be learnt.
bool is_learnt(const Json& message, size_t turn) {
  const Json* weight = message.find("weight");
  if (!weight || weight->is_null()) return true;
  if (!weight->is_number() || (weight->as_double() != 0 && weight->as_double() != 1))
    fail("messages[{}].weight is {}, expected 0 or 1", turn, weight->dump());
  return weight->as_double() != 0;
}

// What the template's {% generation %} blocks mark; a block belongs to a turn when there are as many as turns.
std::vector<TurnSpan> marked_turns(const Json::Array& messages, size_t first_turn, const RenderedChat& full,
                                   const Json& extra, const ChatRenderer& render) {
  const std::vector<ByteSpan>& blocks = full.generation_spans;
  std::vector<bool> learnt;
  bool all = true;
  for (size_t turn = 0; turn < messages.size(); ++turn) {
    if (!is_assistant(messages[turn])) continue;
    all &= is_learnt(messages[turn], turn);
    learnt.push_back(turn >= first_turn && is_learnt(messages[turn], turn));
  }
  std::vector<TurnSpan> spans;
  if (learnt.size() == blocks.size()) {
    for (size_t i = 0; i < blocks.size(); ++i)
      if (learnt[i]) spans.push_back({blocks[i]});
    return spans;
  }
  if (!all)
    fail("a message has a weight of 0, but the template marks {} answers of {} assistant turns", blocks.size(),
         learnt.size());
  const std::string prompt =
      first_turn == 0 ? "" : render(first_messages(messages, first_turn), false, extra).text;
  if (!full.text.starts_with(prompt))
    fail(
        "the template writes the prompt's messages differently once the completion follows, so their tokens "
        "cannot be told apart; give the row as messages");
  for (const ByteSpan block : blocks)
    if (block.begin >= prompt.size()) spans.push_back({block});
  return spans;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

std::string render_whole(const Json::Array& messages, bool as_prompt, const Json& extra,
                         const ChatRenderer& render) {
  for (size_t turn = 0; turn < messages.size() && !as_prompt; ++turn)
    if (!is_learnt(messages[turn], turn))
      fail("messages[{}].weight is 0, but with loss: all every token is learnt", turn);
  return render(messages, as_prompt, extra).text;
}

LearntChat render_chat(const Json::Array& messages, size_t first_turn, const Json& extra,
                       const ChatRenderer& render, const EndCheck& has_end) {
  RenderedChat full = render(messages, false, extra);
  LearntChat chat{full.text, {}};
  if (!full.generation_spans.empty()) {
    chat.texts = {{full.text, marked_turns(messages, first_turn, full, extra, render)}};
    return chat;
  }
  std::vector<size_t> turns;
  for (size_t turn = first_turn; turn < messages.size(); ++turn)
    if (is_assistant(messages[turn]) && is_learnt(messages[turn], turn)) turns.push_back(turn);
  chat.texts = TurnFinder(messages, extra, render, has_end).texts_of(turns, full);
  if (chat.texts.empty()) chat.texts = {{std::move(full.text)}};
  return chat;
}

}  // namespace temper::data
