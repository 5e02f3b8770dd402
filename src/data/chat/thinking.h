#pragma once
#include <optional>

#include "data/chat/words.h"

namespace temper::data {

// Some templates begin answers with an open <think> in the generation prompt and leave the thinking out of
// every answer, of the last one, too. Then: the generation prompt, what the message thinks and the answer as
// `until`, the text of the conversation that ends with it, has it. None where that is not so, or the message
// thinks nothing.
std::optional<RenderedChat> with_left_out_thinking(const Json& message, const RenderedChat& prompt,
                                                   const RenderedChat& until, size_t index);

}  // namespace temper::data
