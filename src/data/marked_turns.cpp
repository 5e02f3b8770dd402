#include "data/marked_turns.h"

#include <algorithm>

#include "base/error.h"
#include "data/turns.h"
#include "data/words.h"

namespace temper::data {
namespace {

// Whether the template wrote all texts of the message (what else it holds is not looked at).
bool wrote_all(const Json& message, const std::optional<Words>& words) {
  return std::all_of(message.as_object().begin(), message.as_object().end(), [&](const auto& field) {
    const auto& [name, value] = field;
    return name == "role" || !value.is_string() || trim(value.as_string()).empty() ||
           (words && words->text.find(trim(value.as_string())) != std::string::npos);
  });
}

}  // namespace

bool is_assistant(const Json& message) { return message.at("role") == Json("assistant"); }

bool is_learnt(const Json& message, size_t turn) {
  const Json* weight = message.find("weight");
  if (!weight || weight->is_null()) return true;
  if (!weight->is_number() || (weight->as_double() != 0 && weight->as_double() != 1))
    fail("messages[{}].weight is {}, expected 0 or 1", turn, weight->dump());
  return weight->as_double() != 0;
}

// Where there are as many blocks as turns, each is one turn's. Else they can be learnt from a message on.
std::vector<ChatText> MarkedTurns::texts_from(size_t first_turn, const RenderedChat& whole) const {
  std::vector<size_t> turns;
  for (size_t turn = 0; turn < messages_.size(); ++turn)
    if (is_assistant(messages_[turn])) turns.push_back(turn);
  const std::vector<ByteSpan>& blocks = whole.generation_spans;
  if (turns.size() != blocks.size()) {
    for (const size_t turn : turns)
      if (!is_learnt(messages_[turn], turn))
        fail("a message has a weight of 0, but the template marks {} answers of {} assistant turns",
             blocks.size(), turns.size());
    return {{whole.text, blocks_behind(first_turn, whole)}};
  }
  std::vector<ChatText> texts;
  std::vector<TurnSpan> together;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i] < first_turn || !is_learnt(messages_[turns[i]], turns[i])) continue;
    if (std::optional<ChatText> own = text_up_to(turns[i], i, whole))
      texts.push_back(std::move(*own));
    else
      together.push_back({blocks[i]});
  }
  if (!together.empty() || texts.empty()) texts.push_back({whole.text, std::move(together)});
  return texts;
}

// The text that a turn is learnt from on its own, where words of it are missing in the whole conversation's.
std::optional<ChatText> MarkedTurns::text_up_to(size_t turn, size_t number, const RenderedChat& whole) const {
  const std::optional<Words> words = words_of(whole, turn);
  if (turn + 1 == messages_.size() || wrote_all(messages_[turn], words)) return std::nullopt;
  RenderedChat until = render_(first_messages(messages_, turn + 1), false, extra_);
  const std::optional<Words> own = words_of(until, turn);
  if (!own || until.generation_spans.size() != number + 1 || (words && words->text == own->text))
    return std::nullopt;
  return ChatText{std::move(until.text), {{until.generation_spans.back()}}};
}

std::vector<TurnSpan> MarkedTurns::blocks_behind(size_t first_turn, const RenderedChat& whole) const {
  const std::string prompt =
      first_turn == 0 ? "" : render_(first_messages(messages_, first_turn), false, extra_).text;
  if (!whole.text.starts_with(prompt))
    fail(
        "the template writes the prompt's messages differently once the completion follows, so their tokens "
        "cannot be told apart; give the row as messages");
  std::vector<TurnSpan> spans;
  for (const ByteSpan block : whole.generation_spans)
    if (block.begin >= prompt.size()) spans.push_back({block});
  return spans;
}

}  // namespace temper::data
