#include "data/chat_template.h"

namespace temper::data {

ChatRenderer renderer_of(std::shared_ptr<const templates::ChatTemplate> chat_template) {
  if (!chat_template) return nullptr;
  return [chat_template](const Json& messages, bool add_generation_prompt, const Json& extra) {
    templates::Rendered rendered =
        chat_template->render_with_generation(messages, add_generation_prompt, extra);
    RenderedChat chat{std::move(rendered.text), {}};
    for (const auto& [begin, end] : rendered.generation) chat.generation_spans.push_back({begin, end});
    return chat;
  };
}

}  // namespace temper::data
