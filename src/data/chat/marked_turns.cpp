#include "data/chat/marked_turns.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat/messages.h"
#include "data/chat/turns.h"
#include "data/chat/words.h"
#include "templates/messages.h"

namespace temper::data {
namespace {

// Whether the template wrote all that the message says, thinks and calls. Other fields are nothing to learn.
bool wrote_all(const Json& message, size_t index, const RenderedChat& chat) {
  using templates::Field;
  const std::string_view content = text_in(message, "content");
  const auto inside = templates::thinking_inside(content);
  const std::string_view said = content.substr(inside ? inside->answer : 0);
  size_t thought = inside ? count_bytes(content.substr(inside->begin, inside->end - inside->begin)) : 0;
  for (const std::string_view field : templates::kReasoningFields)
    thought = std::max(thought, count_bytes(text_in(message, field)));
  const Json* calls = message.find("tool_calls");
  const bool called = calls && calls->is_array() && !calls->as_array().empty();
  return bytes_of(chat, {index, Field::kContent}) >= count_bytes(said) &&
         bytes_of(chat, {index, Field::kReasoning}) >= thought &&
         (!called || bytes_of(chat, {index, Field::kToolCalls}) > 0);
}

}  // namespace

// If there are as many blocks as turns, each is one turn's. Otherwise all blocks behind the message before
// `first_turn` are trained on, as long as no turn has a weight of 0.
std::vector<ChatText> MarkedTurns::texts_from(size_t first_turn, const RenderedChat& whole) const {
  std::vector<size_t> turns;
  for (size_t turn = 0; turn < messages_.size(); ++turn)
    if (is_assistant(messages_[turn])) turns.push_back(turn);
  const std::vector<ByteSpan>& blocks = whole.generation_spans;
  if (turns.size() != blocks.size()) {
    for (const size_t turn : turns)
      if (!is_trained(messages_[turn], turn))
        fail("a message has a weight of 0, but the template marks {} answers of {} assistant turns",
             blocks.size(), turns.size());
    return {{whole.text, blocks_behind(first_turn, whole)}};
  }
  std::vector<ChatText> texts;
  std::vector<TurnSpan> together;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i] < first_turn || !is_trained(messages_[turns[i]], turns[i])) continue;
    if (std::optional<ChatText> own = text_up_to(turns[i], i, whole))
      texts.push_back(std::move(*own));
    else
      together.push_back({blocks[i], false, asked_in(whole, turns[i], blocks[i])});
  }
  if (!together.empty() || texts.empty()) texts.push_back({whole.text, std::move(together)});
  return texts;
}

// The text up to a turn that this turn is trained on if words of it are missing in the whole conversation's
// text.
std::optional<ChatText> MarkedTurns::text_up_to(size_t turn, size_t number, const RenderedChat& whole) const {
  if (turn + 1 == messages_.size() || wrote_all(messages_[turn], turn, whole)) return std::nullopt;
  RenderedChat until = render_(first_messages(messages_, turn + 1), false, extra_);
  const std::optional<Words> words = words_of(whole, turn), own = words_of(until, turn);
  if (!own || until.generation_spans.size() != number + 1 || (words && words->text == own->text))
    return std::nullopt;
  const ByteSpan block = until.generation_spans.back();
  const std::optional<size_t> asked = asked_in(until, turn, block);
  return ChatText{std::move(until.text), {{block, false, asked}}};
}

// A block may begin with what the generation prompt ends with. One that begins with the turn's words does
// not.
std::optional<size_t> MarkedTurns::asked_in(const RenderedChat& chat, size_t turn, ByteSpan block) const {
  const std::optional<Words> words = words_of(chat, turn);
  if (words && words->around.begin <= block.begin) return std::nullopt;
  const std::optional<size_t> asked = answer_in(chat.text, turn, messages_, extra_, render_);
  return asked && *asked > block.begin && *asked < block.end ? asked : std::nullopt;
}

std::vector<TurnSpan> MarkedTurns::blocks_behind(size_t first_turn, const RenderedChat& whole) const {
  const std::string prompt =
      first_turn == 0 ? "" : render_(first_messages(messages_, first_turn), false, extra_).text;
  if (!whole.text.starts_with(prompt))
    fail(
        "the template writes the prompt's messages differently once the completion follows, so their tokens "
        "cannot be distinguished; give the row as messages");
  std::vector<TurnSpan> spans;
  for (const ByteSpan block : whole.generation_spans)
    if (block.begin >= prompt.size()) spans.push_back({block});
  return spans;
}

}  // namespace temper::data
