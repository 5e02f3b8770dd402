#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizers/tokenizer.h"

namespace temper::data {

using tokenizers::ByteSpan;

// A conversation as the chat template writes it.
struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> generation_spans;  // the bytes inside {% generation %} blocks, if there are any
};

// Writes messages (an array); `extra` holds further variables of the template (tools, enable_thinking, …).
// Called from several threads at once. Errors are Errors without a place.
using ChatRenderer =
    std::function<RenderedChat(const Json& messages, bool add_generation_prompt, const Json& extra)>;

// The text of a conversation and the bytes that assistant turns wrote, ascending, without overlaps.
struct ChatText {
  std::string text;
  std::vector<ByteSpan> assistant;
};

// Only assistant turns from `first_turn` on have spans. Templates that wrote {% generation %} blocks say
// themselves where these are. For others a span begins where the generation prompt for it ends and ends where
// the end-of-turn text behind its content ends; where that cannot be established beyond doubt, an Error names
// the turn and what to do.
ChatText render_chat(const Json::Array& messages, size_t first_turn, const Json& extra,
                     const ChatRenderer& render);

// The text of a conversation of which every token is learnt, or none: then as a prompt that asks for an
// answer.
std::string render_whole(const Json::Array& messages, bool as_prompt, const Json& extra,
                         const ChatRenderer& render);

std::string_view trim(std::string_view text);  // without white space (ASCII) at both ends

}  // namespace temper::data
