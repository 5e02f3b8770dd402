#pragma once
#include <optional>

#include "data/chat/chat.h"

namespace temper::data {

struct Turn;

// Finds assistant turns in the texts of a template that does not mark them.
//
// A turn is first rendered as a model meets it: the messages before it with a generation prompt, and those up
// to it. Where both stand at the beginning of a longer text, the turn's place there is known. Else what the
// messages wrote shows where the turn's own words are: before them stands what is left of the generation
// prompt, behind them what stood behind them when the turn was the last.
class TurnFinder {
 public:
  TurnFinder(const Json::Array& messages, const Json& extra, const ChatRenderer& render,
             const EndCheck& has_end)
      : messages_(messages), extra_(extra), render_(render), has_end_(has_end) {}

  // The texts that the turns (indices of assistant messages, ascending) are trained on; `whole` is the text
  // of all messages. Errors name the turn.
  std::vector<ChatText> texts_of(const std::vector<size_t>& turns, const RenderedChat& whole) const;

 private:
  Turn meet(size_t message, const RenderedChat& whole) const;
  std::optional<RenderedChat> continued(const Turn& turn) const;

  const Json::Array& messages_;
  const Json& extra_;
  const ChatRenderer& render_;
  const EndCheck& has_end_;
};

Json::Array first_messages(const Json::Array& messages, size_t count);

}  // namespace temper::data
