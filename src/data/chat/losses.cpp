#include "data/chat/losses.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chat/empty_values.h"
#include "data/chat/fields.h"
#include "data/chat/messages.h"
#include "data/chat/picture_parts.h"
#include "data/chat/tool_calls.h"
#include "data/chat/turns.h"
#include "data/chat/words.h"
#include "templates/messages.h"

namespace temper::data {
namespace {

using templates::Field, templates::kReasoningFields;
using Texts = std::vector<std::string_view>;

bool among(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Bytes but white space that each message's fields wrote.
class Trace {
 public:
  Trace(const RenderedChat& chat, size_t messages) : bytes_(messages) {
    for (const auto& [span, source] : chat.written)
      if (source.message < messages)
        bytes_[source.message][static_cast<size_t>(source.field)] +=
            count_bytes(std::string_view(chat.text).substr(span.begin, span.end - span.begin));
  }
  size_t of(size_t message, Field field) const {
    return bytes_[message][static_cast<size_t>(field)] +
           bytes_[message][static_cast<size_t>(Field::kSeveral)];
  }

 private:
  std::vector<std::array<size_t, 5>> bytes_;
};

// The texts in a value; without keys.
void add_texts(const Json& value, Texts& texts) {
  if (value.is_string()) texts.push_back(value.as_string());
  if (value.is_array())
    for (const Json& item : value.as_array()) add_texts(item, texts);
  if (value.is_object())
    for (const auto& [name, member] : value.as_object()) add_texts(member, texts);
}

size_t size_of(const Texts& texts) {
  size_t size = 0;
  for (const std::string_view text : texts) size += count_bytes(text);
  return size;
}

// Names and texts in arguments. JSON text of arguments may be written in another spelling, as an object.
void add_call(const Json& call, Texts& texts) {
  const Json* function = call.find("function");
  const Json& called = function ? *function : call;
  texts.push_back(text_in(called, "name"));
  if (const Json* arguments = called.find("arguments")) add_texts(*arguments, texts);
}

void add_tool(const Json& tool, Texts& texts) {
  const Json* function = tool.is_object() ? tool.find("function") : nullptr;
  const Json& described = function && function->is_object() ? *function : tool;
  if (described.is_object())
    for (const std::string_view field : {"name", "description"}) texts.push_back(text_in(described, field));
}

class Finder {
 public:
  Finder(const Json::Array& messages, const RenderedChat& whole)
      : messages_(messages),
        whole_(whole),
        trace_(whole, messages.size()),
        is_traced_(!whole.unread.empty()) {}

  // Texts of which `written` bytes are traced. Empty where all are there, else how many are not.
  std::string_view missing(const Texts& said, size_t written) const {
    if (written >= size_of(said)) return "";
    if (written == 0 && is_traced_) return "all";
    const auto found =
        std::count_if(said.begin(), said.end(), [&](std::string_view text) { return holds(text); });
    if (found == std::ssize(said)) return "";
    return written == 0 ? "all" : "a part";
  }

  void note(std::string_view missing, const std::string& what) {
    if (missing.empty()) return;
    add_once(losses_.lost,
             fmt::format("the chat template leaves out {}{}", missing == "all" ? "" : "a part of ", what));
  }

  // What of a message is not there.
  struct Missing {
    std::string_view content, reasoning, calls;
    bool any() const { return !content.empty() || !reasoning.empty() || !calls.empty(); }
  };
  Missing missing_of(size_t i) const {
    const Json& message = messages_[i];
    const std::string_view content = text_in(message, "content");
    const auto inside = templates::thinking_inside(content);
    std::string_view thought = inside ? content.substr(inside->begin, inside->end - inside->begin) : "";
    for (const std::string_view field : kReasoningFields)
      if (text_in(message, field).size() > thought.size()) thought = text_in(message, field);
    return {missing(texts_between_marks(content.substr(inside ? inside->answer : 0)),
                    trace_.of(i, Field::kContent)),
            missing({thought}, trace_.of(i, Field::kReasoning)),
            missing(calls_of(message), trace_.of(i, Field::kToolCalls))};
  }

  void note(size_t i, const Missing& found) {
    // Other roles are data, of which each would be a loss of its own.
    const std::string_view role = text_in(messages_[i], "role");
    const std::string of = is_known_role(role) ? fmt::format("role '{}'", role) : "an uncommon role";
    note(found.content, "content of " + of);
    note(found.reasoning, "reasoning of " + of);
    note(found.calls, "tool_calls of " + of);
  }

  void look_at_variable(const Json& extra, std::string_view name, size_t written,
                        void (*add)(const Json&, Texts&)) {
    const Json* list = extra.find(name);
    if (!list || !list->is_array()) return;
    Texts said;
    for (const Json& item : list->as_array()) add(item, said);
    note(missing(said, written), std::string(name));
  }

  bool has_calls() const {
    for (size_t i = 0; i < messages_.size(); ++i)
      if (!missing(calls_of(messages_[i]), trace_.of(i, Field::kToolCalls)).empty()) return false;
    return true;
  }

  void find_unread(size_t i) {
    constexpr std::array<std::string_view, 5> kFound = {"role", "content", "tool_calls", "function_call",
                                                        "weight"};
    if (i >= whole_.unread.size() || trace_.of(i, Field::kOther) > 0) return;
    for (const std::string& name : whole_.unread[i])
      if (!among(kFound, name) && !among(kReasoningFields, name))
        add_once(losses_.unread, "messages[]." + name);
  }

  Losses take() { return std::move(losses_); }

 private:
  bool holds(std::string_view text) const { return whole_.text.find(trim(text)) != std::string::npos; }

  static Texts calls_of(const Json& message) {
    Texts said;
    const Json* calls = message.is_object() ? message.find("tool_calls") : nullptr;
    if (calls && calls->is_array())
      for (const Json& call : calls->as_array()) add_call(call, said);
    return said;
  }

  const Json::Array& messages_;
  const RenderedChat& whole_;
  Trace trace_;
  bool is_traced_;  // the text says which of its bytes came from where
  Losses losses_;
};

// What is missing of an answer in the text that only this answer is trained on: the one that ends with it.
// There thinking follows the generation prompt if that begins it.
Finder::Missing missing_alone(const Json::Array& messages, size_t turn, const Json& extra,
                              const ChatRenderer& render, Finder::Missing missing) {
  try {
    const Json::Array until = first_messages(messages, turn + 1);
    const RenderedChat chat = render(until, false, extra);
    missing = Finder(until, chat).missing_of(turn);
    if (missing.reasoning.empty()) return missing;
    const RenderedChat prompt = render(first_messages(messages, turn), true, extra);
    if (trim(prompt.text).ends_with(templates::kThinkingBegin)) missing.reasoning = "";
  } catch (const Error&) {  // the template writes no such conversation
  }
  return missing;
}

// The messages with arguments of calls as objects, whose texts stand in the text one by one.
class Spelled {
 public:
  explicit Spelled(const Json::Array& messages) : given_(messages) {
    const auto calls = [](const Json& message) { return message.find("tool_calls") != nullptr; };
    if (std::any_of(messages.begin(), messages.end(), calls))
      spelled_ = with_arguments(messages, Arguments::kObjects);
  }
  const Json::Array& messages() const { return spelled_ ? *spelled_ : given_; }

 private:
  const Json::Array& given_;
  std::optional<Json::Array> spelled_;
};

// The last message of the user; 0 where there is none.
size_t last_question(const Json::Array& messages) {
  size_t i = messages.size();
  while (i > 0 && text_in(messages[i - 1], "role") != "user") --i;
  return i > 0 ? i - 1 : 0;
}

class TellOnce {
 public:
  void tell(const PlaceOf& place, const std::vector<std::string>& what, std::string_view of_further_rows,
            void (*log)(std::string_view)) {
    const std::scoped_lock lock(mutex_);
    for (const std::string& each : what)
      if (warned_.size() < kNamesCounted && warned_.insert(each).second)
        log(fmt::format("[{}] {} (further rows are {})", place(), each, of_further_rows));
  }

 private:
  std::mutex mutex_;
  std::set<std::string> warned_;
};

}  // namespace

Losses losses_of(const Json::Array& messages, Rendering rendering, const Json& extra,
                 const ChatRenderer& render, const RenderedChat& whole) {
  const Spelled with_objects(messages);
  const Json::Array& spelled = with_objects.messages();
  Finder finder(spelled, whole);
  const size_t asked = rendering == Rendering::kPrompt ? last_question(spelled) : 0;
  for (size_t i = 0; i < spelled.size(); ++i) {
    Finder::Missing missing = finder.missing_of(i);
    if (i < asked) missing.reasoning = "";
    if (missing.any() && rendering == Rendering::kTurns && is_assistant(spelled[i]))
      missing = missing_alone(spelled, i, extra, render, missing);
    finder.note(i, missing);
    finder.find_unread(i);
  }
  finder.look_at_variable(extra, "tools", whole.tool_bytes, add_tool);
  finder.look_at_variable(extra, "documents", whole.document_bytes, add_texts);
  Losses losses = finder.take();
  if (whole.nones > 0)
    losses.lost.emplace_back("the chat template writes the word None for a value that is missing");
  return losses;
}

bool holds_calls(const Json::Array& messages, const RenderedChat& chat) {
  const Spelled spelled(messages);
  return Finder(spelled.messages(), chat).has_calls();
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (names.size() < kNamesKept && !among(names, name)) names.push_back(name);
}

void count_names(std::map<std::string, int64_t>& counts, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (counts.contains(name) || counts.size() < kNamesCounted) ++counts[name];
}

void warn_of_losses(const PlaceOf& place, const std::vector<std::string>& lost) {
  static TellOnce once;
  once.tell(place, lost, "only counted", log_warning);
}

void log_notes(const PlaceOf& place, const std::vector<std::string>& notes) {
  static TellOnce once;
  once.tell(place, notes, "not named", log_info);
}

}  // namespace temper::data
