#include "data/chat.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace temper::data {
namespace {

// Stands for what an assistant wrote, to see what a template writes behind it.
constexpr std::string_view kSentinel = "q7JvTemperStandsHere4zX";
constexpr std::string_view kThinkEnd = "</think>";

bool is_assistant(const Json& message) { return message.at("role") == Json("assistant"); }

// Messages may say with a weight of 0 that they are not to be learnt.
bool is_learnt(const Json& message, size_t turn) {
  const Json* weight = message.find("weight");
  if (!weight || weight->is_null()) return true;
  if (!weight->is_number() || (weight->as_double() != 0 && weight->as_double() != 1))
    fail("messages[{}].weight is {}, expected 0 or 1", turn, weight->dump());
  return weight->as_double() != 0;
}

std::string_view content_of(const Json& message) {
  const Json* content = message.find("content");
  return content && content->is_string() ? std::string_view(content->as_string()) : std::string_view();
}

Json::Array first_messages(const Json::Array& messages, size_t count) {
  return {messages.begin(), messages.begin() + static_cast<Json::Array::difference_type>(count)};
}

// An assistant's message with the sentinel in place of its content, or of its last call's name where it has
// no content, and the ways in which a template may write what was replaced.
struct Marked {
  Json message;
  std::vector<std::string> variants;
};

std::optional<Marked> mark_content(const Json& message) {
  const std::string_view content = trim(content_of(message));
  if (content.empty()) return std::nullopt;
  Marked marked{message, {std::string(content)}};
  marked.message.set("content", kSentinel);
  const size_t think = content.rfind(kThinkEnd);
  if (think != std::string_view::npos)
    marked.variants.emplace_back(trim(content.substr(think + kThinkEnd.size())));
  return marked;
}

std::optional<Marked> mark_call(const Json& message) {
  const Json* calls = message.find("tool_calls");
  if (!calls || !calls->is_array() || calls->as_array().empty()) return std::nullopt;
  Json::Array marked_calls = calls->as_array();
  Json& call = marked_calls.back();
  const Json* function = call.is_object() ? call.find("function") : nullptr;
  Json named = function ? *function : call;
  const Json* name = named.is_object() ? named.find("name") : nullptr;
  if (!name || !name->is_string() || name->as_string().empty()) return std::nullopt;
  Marked marked{message, {name->as_string()}};
  named.set("name", kSentinel);
  if (function)
    call.set("function", std::move(named));
  else
    call = std::move(named);
  marked.message.set("tool_calls", std::move(marked_calls));
  return marked;
}

// Which {% generation %} blocks are learnt; a block belongs to a turn when there are as many as turns.
std::vector<bool> learnt_spans(const Json::Array& messages, size_t count) {
  std::vector<bool> turns;
  for (size_t turn = 0; turn < messages.size(); ++turn)
    if (is_assistant(messages[turn])) turns.push_back(is_learnt(messages[turn], turn));
  const bool all = std::find(turns.begin(), turns.end(), false) == turns.end();
  if (!all && turns.size() != count)
    fail("a message has a weight of 0, but the template marks {} answers of {} assistant turns", count,
         turns.size());
  return all ? std::vector<bool>(count, true) : turns;
}

// What one conversation's spans are looked for with.
class TurnFinder {
 public:
  TurnFinder(const Json::Array& messages, const Json& extra, const ChatRenderer& render,
             std::string_view full)
      : messages_(messages), extra_(extra), render_(render), full_(full) {}

  ByteSpan find(size_t turn) const {
    const std::string prompt = render_(first_messages(messages_, turn), true, extra_).text;
    if (!full_.starts_with(prompt)) refuse(turn, "does not begin where the generation prompt for it ends");
    Json until = first_messages(messages_, turn + 1);
    const std::string written = render_(until, false, extra_).text;
    if (written.size() >= prompt.size() && full_.starts_with(written)) return {prompt.size(), written.size()};
    return {prompt.size(), find_end(prompt.size(), turn, std::move(until))};
  }

  [[noreturn]] static void refuse(size_t turn, std::string_view problem) {
    fail(
        "messages[{}]: the assistant turn {} in the template's text of the whole conversation, so its tokens "
        "cannot be told from the rest; mark assistant turns in the chat template with "
        "{{% generation %}} … {{% endgeneration %}}, or set loss: all",
        turn, problem);
  }

 private:
  // The template wrote the turn differently once more turns followed. With the sentinel in it, the whole text
  // shows all that is written behind; there must stand the same end-of-turn text as after a last turn, and
  // before it what the assistant wrote.
  size_t find_end(size_t begin, size_t turn, Json until) const {
    std::optional<Marked> marked = mark_content(messages_[turn]);
    if (!marked) marked = mark_call(messages_[turn]);
    if (!marked) refuse(turn, "is empty");
    Json all = messages_;
    until.as_array()[turn] = marked->message;
    all.as_array()[turn] = std::move(marked->message);
    const std::string ending = behind_sentinel(until, turn), rest = behind_sentinel(all, turn);
    if (trim(ending).empty()) refuse(turn, "has no end-of-turn text");
    if (!rest.starts_with(ending) || !full_.ends_with(rest)) refuse(turn, "does not end like a last turn");
    const size_t written = full_.size() - rest.size();
    for (const std::string& variant : marked->variants)
      if (written >= begin + variant.size() && full_.substr(0, written).ends_with(variant))
        return written + ending.size();
    refuse(turn, "does not hold its content");
  }

  std::string behind_sentinel(const Json& messages, size_t turn) const {
    const std::string text = render_(messages, false, extra_).text;
    const size_t at = text.rfind(kSentinel);
    if (at == std::string::npos || text.find(kSentinel) != at) refuse(turn, "does not hold its content once");
    return text.substr(at + kSentinel.size());
  }

  const Json::Array& messages_;
  const Json& extra_;
  const ChatRenderer& render_;
  std::string_view full_;
};

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

std::string render_whole(const Json::Array& messages, bool as_prompt, const Json& extra,
                         const ChatRenderer& render) {
  for (size_t turn = 0; turn < messages.size() && !as_prompt; ++turn)
    if (!is_learnt(messages[turn], turn))
      fail("messages[{}].weight is 0, but with loss: all every token is learnt", turn);
  return render(messages, as_prompt, extra).text;
}

ChatText render_chat(const Json::Array& messages, size_t first_turn, const Json& extra,
                     const ChatRenderer& render) {
  RenderedChat full = render(messages, false, extra);
  ChatText chat{std::move(full.text), {}};
  if (!full.generation_spans.empty()) {
    size_t begin = 0;
    if (first_turn > 0) {
      const std::string prompt = render(first_messages(messages, first_turn), false, extra).text;
      if (!chat.text.starts_with(prompt))
        fail(
            "the template writes the prompt's messages differently once the completion follows, so their "
            "tokens cannot be told apart; give the row as messages");
      begin = prompt.size();
    }
    const std::vector<bool> learnt = learnt_spans(messages, full.generation_spans.size());
    for (size_t i = 0; i < learnt.size(); ++i)
      if (learnt[i] && full.generation_spans[i].begin >= begin)
        chat.assistant.push_back(full.generation_spans[i]);
    return chat;
  }
  const TurnFinder finder(messages, extra, render, chat.text);
  size_t done = 0;
  for (size_t turn = first_turn; turn < messages.size(); ++turn) {
    if (!is_assistant(messages[turn]) || !is_learnt(messages[turn], turn)) continue;
    const ByteSpan span = finder.find(turn);
    if (span.begin < done) TurnFinder::refuse(turn, "overlaps the one before it");
    done = span.end;
    chat.assistant.push_back(span);
  }
  return chat;
}

}  // namespace temper::data
