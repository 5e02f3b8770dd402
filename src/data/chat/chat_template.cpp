#include "data/chat/chat_template.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.h"
#include "data/chat/losses.h"
#include "data/chat/opening_turn.h"
#include "data/chat/tool_calls.h"

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

// Whether the template looked at the calls of a message.
bool looked_at_calls(const Json::Array& messages, const RenderedChat& chat) {
  if (chat.unread.size() != messages.size()) return true;  // it is not known
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::vector<std::string>& unread = chat.unread[i];
    for (const char* name : {"tool_calls", "function_call"})
      if (messages[i].is_object() && messages[i].find(name) &&
          std::find(unread.begin(), unread.end(), name) == unread.end())
        return true;
  }
  return false;
}

// The content that templates may expect in messages with calls and no text.
enum class NoContent { kAbsent, kEmpty, kNull };

Json::Array with_no_content(Json::Array messages, NoContent form) {
  for (Json& message : messages)
    if (form != NoContent::kAbsent && message.find("tool_calls") && !message.find("content"))
      message.set("content", form == NoContent::kEmpty ? Json("") : Json());
  return messages;
}

class CallsRenderer {
 public:
  CallsRenderer(ChatRenderer render, bool writes_calls)
      : render_(std::move(render)), writes_calls_(writes_calls) {}

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
          const bool looked = looked_at_calls(form, chat);
          const int problems = problems_of(form, chat, looked);
          if (problems == 0) return chat;
          if (problems < least) best = std::move(chat), least = problems;
          if (!looked) break;
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
  int problems_of(const Json::Array& messages, const RenderedChat& chat, bool looked) const {
    const bool lacks_calls = looked ? !holds_calls(messages, chat) : writes_calls_;
    return 4 * lacks_calls + 2 * (chat.nones > 0) + (looked && encodes_twice(messages, chat.text));
  }

  ChatRenderer render_;
  bool writes_calls_;
};

}  // namespace

ChatRenderer with_call_forms(ChatRenderer render, bool writes_calls) {
  return [render, with_calls = CallsRenderer(render, writes_calls)](
             const Json& messages, bool add_generation_prompt, const Json& extra) {
    if (has_calls(messages.as_array())) return with_calls(messages, add_generation_prompt, extra);
    return render(messages, add_generation_prompt, extra);
  };
}

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
  const bool calls = chat_template->mentions("tool_calls") || chat_template->mentions("function_call");
  return with_opening_turns(with_call_forms(render, calls));
}

}  // namespace temper::data
