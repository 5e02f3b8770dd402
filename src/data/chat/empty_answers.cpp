#include "data/chat/empty_answers.h"

#include <algorithm>

#include "data/chat/chat.h"
#include "data/chat/messages.h"

namespace temper::data {
namespace {

bool says_something(const Json& message, std::string_view field) {
  const Json* value = field_of(message, field);
  if (!value) return false;
  return value->is_string() ? !trim(value->as_string()).empty() : *value != Json(Json::Array{});
}

bool is_empty(const Json& message) {
  constexpr std::array<std::string_view, 3> kSaid = {"content", "tool_calls", "reasoning_content"};
  return std::none_of(kSaid.begin(), kSaid.end(),
                      [&](std::string_view field) { return says_something(message, field); });
}

}  // namespace

EmptyAnswers find_empty_answers(const Content& content) {
  if (!content.chat) {
    const bool empty = trim(std::string_view(content.text).substr(content.target_begin)).empty();
    return {0, empty};
  }
  EmptyAnswers found;
  int64_t answers = 0;
  for (size_t turn = content.first_turn; turn < content.messages.size(); ++turn) {
    if (!is_assistant(content.messages[turn]) || !is_trained(content.messages[turn], turn)) continue;
    ++answers;
    found.turns += is_empty(content.messages[turn]);
  }
  found.nothing = answers > 0 && found.turns == answers;
  return found;
}

void leave_out_empty_answers(Content& content) {
  for (size_t turn = content.first_turn; turn < content.messages.size(); ++turn) {
    Json& message = content.messages[turn];
    if (is_assistant(message) && is_trained(message, turn) && is_empty(message)) message.set("weight", 0);
  }
}

}  // namespace temper::data
