#include "rewards/protocol.h"

#include <cmath>

#include "base/error.h"
#include "base/utf8.h"

namespace temper::rewards {
namespace {

constexpr size_t kShown = 200;  // bytes of a line that is not an answer

std::string shown(std::string_view text) {
  return replace_invalid_utf8(text.substr(0, kShown)) + (text.size() > kShown ? "…" : "");
}

std::string problem_of_messages(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty())
    return fmt::format("messages is {}, expected a list of messages",
                       messages.is_array() ? "an empty list" : messages.kind_name());
  for (const Json& message : messages.as_array()) {
    const Json* role = message.is_object() ? message.find("role") : nullptr;
    if (role == nullptr || !role->is_string()) return "messages has one without a role";
    const Json* content = message.find("content");
    if (content == nullptr || !content->is_string()) return "messages has one without a content that is text";
  }
  if (messages.as_array().back().at("role").as_string() == "assistant")
    return "messages ends with one of the assistant, who is asked for the next";
  return "";
}

// Python writes numbers that are not finite by their names, which are not JSON: null instead. The text itself
// where there are none.
std::string with_null_for_names(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    size_t name = 0;
    for (const std::string_view each : {"NaN", "-Infinity", "Infinity"})
      if (!quoted && name == 0 && text.substr(at).starts_with(each)) name = each.size();
    if (name > 0) {
      out += "null";
      at += name;
      continue;
    }
    if (text[at] == '"') quoted = !quoted;
    const size_t taken = quoted && text[at] == '\\' ? 2 : 1;
    out += text.substr(at, taken);
    at += taken;
  }
  return out;
}

// Sets the verdict; what is wrong with the answer, if anything. `named`: null may be a number that is not
// finite.
std::string take_verdict(const Json& answer, bool named, Verdict& verdict) {
  const Json *error = answer.find("error"), *reward = answer.find("reward"),
             *messages = answer.find("messages");
  if (error != nullptr && !error->is_null()) {
    if (!error->is_string() || error->as_string().empty()) return "error must be a non-empty string";
    verdict.error = error->as_string();
    return "";
  }
  if (named && reward != nullptr && reward->is_null()) {
    verdict.error = "the reward is not a finite number";
    return "";
  }
  if (messages != nullptr && !messages->is_null()) {
    if (std::string problem = problem_of_messages(*messages); !problem.empty()) return problem;
    verdict.next = *messages;
  }
  if (reward == nullptr || reward->is_null())
    return verdict.next.is_null() ? "it has neither a reward nor an error nor messages" : "";
  if (!reward->is_number() || !std::isfinite(reward->as_double()))
    return fmt::format("reward is {}, expected a finite number",
                       reward->is_number() ? "not finite" : reward->kind_name());
  verdict.reward = reward->as_double();
  return "";
}

}  // namespace

std::string request_of(int64_t id, const Sample& sample) {
  return Json(Json::Object{{"id", id},
                           {"row", *sample.row},
                           {"text", replace_invalid_utf8(sample.text)},
                           {"messages", sample.messages},
                           {"tokens", sample.tokens},
                           {"truncated", sample.truncated}})
      .dump();
}

ProtocolAnswer answer_of(std::string_view text) {
  ProtocolAnswer out;
  Json answer;
  const std::string readable = with_null_for_names(text);
  try {
    answer = Json::parse(readable == text ? text : std::string_view(readable), "answer");
  } catch (const Error& error) {
    out.problem = fmt::format("'{}' is not a JSON object ({})", shown(text), error.what());
    return out;
  }
  const Json* id = answer.is_object() ? answer.find("id") : nullptr;
  if (id == nullptr || !id->is_int()) {
    out.problem = fmt::format("'{}' is not a JSON object with an id", shown(text));
    return out;
  }
  out.id = id->as_int();
  if (const std::string problem = take_verdict(answer, readable != text, out.verdict); !problem.empty())
    out.problem = fmt::format("'{}' is not an answer: {}", shown(text), problem);
  return out;
}

}  // namespace temper::rewards
