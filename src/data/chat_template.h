#pragma once
#include <memory>

#include "data/chat.h"
#include "templates/chat.h"

namespace temper::data {

// The renderer of a model's chat template; holds the template as long as it lives. Null gives an empty one.
ChatRenderer renderer_of(std::shared_ptr<const templates::ChatTemplate> chat_template);

}  // namespace temper::data
