#include "data/chat/opening_turn.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace temper::data {
namespace {

constexpr std::string_view kSaid = "q7JvTemperOpensHere4zX";

bool has_user(const Json::Array& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Json& message) { return message.at("role") == Json("user"); });
}

Json message(std::string_view role) { return Json::Object{{"role", role}, {"content", kSaid}}; }

// What the template writes behind a user's turn to ask for an answer.
std::string generation_prompt(const ChatRenderer& render, const Json& extra) {
  const Json::Array asked{message("user")};
  const std::string without = render(asked, false, extra).text, with = render(asked, true, extra).text;
  return with.starts_with(without) ? with.substr(without.size()) : "";
}

// Nothing where the template has no generation prompt, or does not write it before an answer.
std::optional<std::string> opening(const Json::Array& messages, const Json& extra,
                                   const ChatRenderer& render) {
  const std::string prompt = generation_prompt(render, extra);
  Json::Array answered = messages;
  answered.push_back(message("assistant"));
  const std::string text = render(answered, false, extra).text;
  const size_t said = text.find(kSaid);
  if (prompt.empty() || said == std::string::npos) return std::nullopt;
  const size_t at = text.substr(0, said).rfind(prompt);
  if (at == std::string::npos) return std::nullopt;
  return text.substr(0, at + prompt.size());
}

}  // namespace

ChatRenderer with_opening_turns(ChatRenderer render) {
  return [render = std::move(render)](const Json& messages, bool add_generation_prompt, const Json& extra) {
    const Json::Array& given = messages.as_array();
    if (!add_generation_prompt || has_user(given)) return render(messages, add_generation_prompt, extra);
    try {
      if (!given.empty()) return render(messages, true, extra);
    } catch (const Error&) {  // it says so below where nothing else helps
    }
    try {
      if (std::optional<std::string> text = opening(given, extra, render))
        return RenderedChat{std::move(*text), {}};
    } catch (const Error&) {  // the template writes no such conversation
    }
    return render(messages, true, extra);
  };
}

}  // namespace temper::data
