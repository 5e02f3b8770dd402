#pragma once
#include <memory>

#include "data/chat/chat.h"
#include "templates/chat.h"

namespace temper::data {

// The renderer of a model's chat template; holds the template as long as it lives. Null gives an empty one.
ChatRenderer renderer_of(std::shared_ptr<const templates::ChatTemplate> chat_template);

// Renders messages with calls in the first of the forms in which data have them that the template writes
// whole: arguments as objects, as JSON text or as objects without the nulls of their text, no content as
// none, as an empty text or as None. Forms of arguments are tried only where the template looks at calls;
// where it `writes_calls` in no form, none is better than another because of them.
ChatRenderer with_call_forms(ChatRenderer render, bool writes_calls);

}  // namespace temper::data
