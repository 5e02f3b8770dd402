#include "data/chat_template.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.h"
#include "data/losses.h"
#include "data/opening_turn.h"
#include "data/tool_calls.h"

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

// What templates may expect beside calls that come with no text.
enum class NoContent { kAbsent, kEmpty, kNull };

Json::Array with_no_content(Json::Array messages, NoContent form) {
  for (Json& message : messages)
    if (form != NoContent::kAbsent && message.find("tool_calls") && !message.find("content"))
      message.set("content", form == NoContent::kEmpty ? Json("") : Json());
  return messages;
}

// Renders messages with calls in the first of the forms in which data have them that the template writes
// whole: arguments as objects or JSON text, no content as none, as an empty text or as None.
class CallsRenderer {
 public:
  explicit CallsRenderer(ChatRenderer render) : render_(std::move(render)) {}

  RenderedChat operator()(const Json& messages, bool add_generation_prompt, const Json& extra) const {
    std::optional<RenderedChat> best;
    int least = kProblems;
    std::exception_ptr refusal;
    std::vector<Json::Array> tried;
    for (const NoContent content : {NoContent::kAbsent, NoContent::kEmpty, NoContent::kNull})
      for (const Arguments arguments :
           {Arguments::kAsGiven, Arguments::kObjects, Arguments::kText, Arguments::kFilled}) {
        Json::Array form = with_no_content(with_arguments(messages.as_array(), arguments), content);
        if (std::find(tried.begin(), tried.end(), form) != tried.end()) continue;
        try {
          RenderedChat chat = render_(form, add_generation_prompt, extra);
          const int problems = problems_of(form, chat);
          if (problems == 0) return chat;
          if (problems < least) best = std::move(chat), least = problems;
        } catch (const Error&) {
          if (!refusal) refusal = std::current_exception();
        }
        tried.push_back(std::move(form));
      }
    if (!best) std::rethrow_exception(refusal);
    return std::move(*best);
  }

 private:
  static constexpr int kProblems = 8;  // more than there can be

  // The worst weighs most.
  static int problems_of(const Json::Array& messages, const RenderedChat& chat) {
    return 4 * !holds_calls(messages, chat) + 2 * (chat.nones > 0) + encodes_twice(messages, chat.text);
  }

  ChatRenderer render_;
};

}  // namespace

ChatRenderer renderer_of(std::shared_ptr<const templates::ChatTemplate> chat_template) {
  if (!chat_template) return nullptr;
  const auto render = [chat_template](const Json& messages, bool add_generation_prompt, const Json& extra) {
    templates::Rendered rendered =
        chat_template->render_with_generation(messages, add_generation_prompt, extra);
    RenderedChat chat{std::move(rendered.text)};
    for (const auto& [begin, end] : rendered.generation) chat.generation_spans.push_back({begin, end});
    for (const auto& [begin, end, source] : rendered.origins) chat.written.push_back({{begin, end}, source});
    chat.unread = std::move(rendered.unread);
    chat.tool_bytes = rendered.tool_bytes;
    chat.document_bytes = rendered.document_bytes;
    chat.nones = rendered.nones;
    return chat;
  };
  return with_opening_turns([render, with_calls = CallsRenderer(render)](
                                const Json& messages, bool add_generation_prompt, const Json& extra) {
    if (has_calls(messages.as_array())) return with_calls(messages, add_generation_prompt, extra);
    return render(messages, add_generation_prompt, extra);
  });
}

}  // namespace temper::data
