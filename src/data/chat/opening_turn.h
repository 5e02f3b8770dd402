#pragma once
#include "data/chat/chat.h"

namespace temper::data {

// The same renderer, which writes prompts for conversations that the assistant opens, too: before any
// message, or where the template refuses messages without a turn of the user. The prompt is then what stands
// before the assistant's words in such a conversation, up to the end of the template's generation prompt.
ChatRenderer with_opening_turns(ChatRenderer render);

}  // namespace temper::data
