#pragma once
#include <optional>
#include <vector>

#include "data/chat/chat.h"

namespace temper::data {

// Finds assistant turns in the texts of a template that marks them with {% generation %} blocks.
class MarkedTurns {
 public:
  MarkedTurns(const Json::Array& messages, const Json& extra, const ChatRenderer& render)
      : messages_(messages), extra_(extra), render_(render) {}

  // The texts that the turns from `first_turn` on are trained on; `whole` is the text of all messages.
  std::vector<ChatText> texts_from(size_t first_turn, const RenderedChat& whole) const;

 private:
  std::vector<TurnSpan> blocks_behind(size_t first_turn, const RenderedChat& whole) const;
  std::optional<size_t> asked_in(const RenderedChat& chat, size_t turn, ByteSpan block) const;
  std::optional<ChatText> text_up_to(size_t turn, size_t number, const RenderedChat& whole) const;

  const Json::Array& messages_;
  const Json& extra_;
  const ChatRenderer& render_;
};

}  // namespace temper::data
