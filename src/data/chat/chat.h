#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "templates/template.h"
#include "tokenizers/tokenizer.h"

namespace temper::data {

using tokenizers::ByteSpan;

// Bytes of a rendered conversation that came from a field of a message, except its role.
struct Written {
  ByteSpan bytes;
  templates::Source source = {};
};

// A conversation as the chat template writes it.
struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> generation_spans = {};  // the bytes inside {% generation %} blocks, if there are any
  std::vector<Written> written = {};            // ascending, without overlaps
  std::vector<std::vector<std::string>> unread = {};  // of each message, the fields that nothing looked up
  size_t tool_bytes = 0, document_bytes = 0;          // that came from the variables tools and documents
  int64_t nones = 0;                                  // how often None was written as a word
};

// Writes messages (an array); `extra` holds further variables of the template (tools, enable_thinking, …).
// Called from several threads at once. Errors are Errors without a place.
using ChatRenderer =
    std::function<RenderedChat(const Json& messages, bool add_generation_prompt, const Json& extra)>;

// What an assistant turn wrote.
struct TurnSpan {
  ByteSpan bytes;
  bool open =
      false;  // the template ends it with no token of its own: what ends it is the next turn's first token
  std::optional<size_t> asked = {};  // where the generation prompt for it ends; none: at its beginning
};

// A text to learn from and its assistant turns, ascending, without overlaps.
struct ChatText {
  std::string text;
  std::vector<TurnSpan> assistant = {};
  bool continued = false;  // ends with the beginning of a turn that follows, as the last one is open
};

// Whether a text holds a token that can end a turn.
using EndCheck = std::function<bool(std::string_view text)>;

// The texts that one conversation is trained on: at least one, in the order of their turns. Every assistant
// turn from `first_turn` on is a span of one of them. That is `whole`, the text of the whole conversation,
// unless the template writes a turn otherwise once more turns follow (without its thinking, or with another
// end): such a turn is trained on the text of the conversation up to it, as it is written there. Templates
// that wrote {% generation %} blocks say themselves where turns are. For others a span begins where the
// generation prompt for it ends and ends with the end-of-turn text behind its content; where that cannot be
// established beyond doubt, an Error names the turn and what to do.
std::vector<ChatText> render_chat(const Json::Array& messages, size_t first_turn, const Json& extra,
                                  const ChatRenderer& render, const EndCheck& has_end, RenderedChat whole);

// The text of a conversation that is trained on all its tokens, or (`as_prompt`) that is a prompt for an
// answer and is not trained on.
RenderedChat render_whole(const Json::Array& messages, bool as_prompt, const Json& extra,
                          const ChatRenderer& render);

// Where the generation prompt for an assistant turn ends in a text of the conversation; none where the text
// does not begin with that prompt, or the template refuses it.
std::optional<size_t> answer_in(std::string_view text, size_t turn, const Json::Array& messages,
                                const Json& extra, const ChatRenderer& render);
// For all assistant turns.
std::vector<size_t> answers_in(std::string_view text, const Json::Array& messages, const Json& extra,
                               const ChatRenderer& render);

std::string_view trim(std::string_view text);  // without white space at both ends

}  // namespace temper::data
