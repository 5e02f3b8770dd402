#include "data/chat_template.h"

#include <exception>
#include <optional>

#include "base/error.h"
#include "data/messages.h"
#include "data/opening_turn.h"

namespace temper::data {
namespace {

// Arguments of calls that stand in the text as JSON text in a JSON text: {"arguments": "{\"city\": …}"}.
bool encodes_twice(const Json::Array& messages, std::string_view text) {
  const Json::Array objects = with_arguments(messages, Arguments::kObjects);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (objects[i] == messages[i]) continue;
    for (const Json& call : messages[i].at("tool_calls").as_array()) {
      const Json* function = call.find("function");
      const Json* arguments = (function ? *function : call).find("arguments");
      if (arguments && arguments->is_string() && text.find(arguments->dump()) != std::string_view::npos)
        return true;
    }
  }
  return false;
}

bool has_calls(const Json::Array& messages) {
  for (const Json& message : messages)
    if (message.is_object() && message.find("tool_calls")) return true;
  return false;
}

}  // namespace

ChatRenderer renderer_of(std::shared_ptr<const templates::ChatTemplate> chat_template) {
  if (!chat_template) return nullptr;
  const auto render = [chat_template](const Json& messages, bool add_generation_prompt, const Json& extra) {
    templates::Rendered rendered =
        chat_template->render_with_generation(messages, add_generation_prompt, extra);
    RenderedChat chat{std::move(rendered.text)};
    for (const auto& [begin, end] : rendered.generation) chat.generation_spans.push_back({begin, end});
    for (const auto& [begin, end, source] : rendered.origins) chat.written.push_back({{begin, end}, source});
    return chat;
  };
  // Some templates expect a call's arguments as an object, others as JSON text, and data have both.
  return with_opening_turns([render](const Json& messages, bool add_generation_prompt, const Json& extra) {
    const Json::Array& given = messages.as_array();
    if (!has_calls(given)) return render(messages, add_generation_prompt, extra);
    std::exception_ptr problem;
    for (const std::optional<Arguments> wanted :
         {std::optional<Arguments>(), std::optional(Arguments::kObjects), std::optional(Arguments::kText)}) {
      const Json::Array form = wanted ? with_arguments(given, *wanted) : given;
      if (problem && form == given) continue;
      try {
        RenderedChat chat = render(form, add_generation_prompt, extra);
        if (!encodes_twice(form, chat.text)) return chat;
      } catch (const Error&) {
        if (!problem) problem = std::current_exception();
      }
    }
    if (problem) std::rethrow_exception(problem);
    return render(messages, add_generation_prompt, extra);
  });
}

}  // namespace temper::data
