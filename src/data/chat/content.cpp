#include "data/chat/content.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat/empty_values.h"
#include "data/chat/messages.h"

namespace temper::data {
namespace {

Json message(std::string_view role, std::string text) {
  return Json::Object{{"role", role}, {"content", std::move(text)}};
}

Content chat_of(Json::Array messages, size_t first_turn = 0) {
  Content content;
  content.chat = true;
  content.messages = std::move(messages);
  content.first_turn = first_turn;
  return content;
}

Content text_of(const std::string& prompt, const std::string& answer) {
  Content content;
  content.text = prompt + answer;
  content.target_begin = prompt.size();
  return content;
}

// Turns may stand under either name.
Content turns_of(const Json& row, RowFormat format) {
  const bool messages = field_of(row, "messages") || !field_of(row, "conversations");
  const std::string field = messages ? "messages" : "conversations";
  const Json& list = required_field(row, field);
  return chat_of(format == RowFormat::kShareGpt ? read_sharegpt(list, field) : read_messages(list, field));
}

// The field `system` of a row is a conversation's first message.
Content with_system(Content content, const Json& row) {
  const Json* system = content.chat ? field_of(row, "system") : nullptr;
  if (!system || check_string(*system, "system").empty()) return content;
  const Json& first = content.messages.front();
  if (first.at("role") == Json("system")) {
    if (text_in(first, "content") != system->as_string())
      fail("the field system and the first message, of role system, differ; expected one of them");
    return content;
  }
  content.messages.insert(content.messages.begin(), message("system", system->as_string()));
  if (content.first_turn > 0) ++content.first_turn;
  return content;
}

// A prompt and an answer, both texts or both messages.
Content pair_of(const Json& prompt, const Json& answer, const std::string& name) {
  if (prompt.is_string()) return text_of(prompt.as_string(), check_string(answer, name));
  if (!prompt.is_array()) fail("prompt must be a string or a list of messages, found {}", prompt.kind_name());
  Json::Array messages = read_messages(prompt, "prompt");
  const size_t first_turn = messages.size();
  for (Json& turn : read_messages(answer, name)) messages.push_back(std::move(turn));
  return chat_of(std::move(messages), first_turn);
}

// A question and its answer: a conversation where the model has a template for one.
Content answer_of(Json::Array context, std::string question, const std::string& answer, bool has_template) {
  if (has_template) {
    context.push_back(message("user", std::move(question)));
    const size_t first_turn = context.size();
    context.push_back(message("assistant", answer));
    return chat_of(std::move(context), first_turn);
  }
  std::string prompt;
  for (const Json& turn : context) prompt += turn.at("content").as_string() + "\n\n";
  return text_of(prompt + question + "\n\n", answer);
}

Content alpaca_of(const Json& row, bool has_template) {
  const auto text = [&](std::string_view name) {
    const Json* field = field_of(row, name);
    return field ? check_string(*field, std::string(name)) : std::string();
  };
  Json::Array context;
  if (const std::string system = text("system"); !system.empty())
    context.push_back(message("system", system));
  if (const Json* history = field_of(row, "history")) {
    if (!history->is_array()) fail("history must be an array, found {}", history->kind_name());
    for (const Json& turn : history->as_array()) {
      if (!turn.is_array() || turn.as_array().size() != 2)
        fail("history must hold pairs, [question, answer], found {}", turn.dump());
      context.push_back(message("user", check_string(turn.as_array()[0], "history[][0]")));
      context.push_back(message("assistant", check_string(turn.as_array()[1], "history[][1]")));
    }
  }
  std::string question = check_string(required_field(row, "instruction"), "instruction");
  if (const std::string input = text("input"); !input.empty()) question += "\n\n" + input;
  const std::string answer = check_string(required_field(row, "output"), "output");
  return answer_of(std::move(context), std::move(question), answer, has_template);
}

Json with_label(Json row, int label) {
  row.set("label", label);
  return row;
}

Content class_of(const Json& row, bool has_template, const Labels& labels) {
  const std::string& text = check_string(required_field(row, "text"), "text");
  const Json& label = required_field(row, "label");
  // A number that is a text, as tables write it.
  if (label.is_string() && !labels.empty() &&
      std::count(labels.begin(), labels.end(), label.as_string()) == 0)
    if (const std::string& text = label.as_string();
        !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos)
      return class_of(with_label(row, std::stoi(text)), has_template, labels);
  if (label.is_string()) return answer_of({}, text, label.as_string(), has_template);
  if (!label.is_int()) fail("label must be a string or a number of a class, found {}", label.kind_name());
  if (labels.empty())
    fail("label is {}, but the classes have no names; list them in data.train[].labels", label.dump());
  if (label.as_int() < 0 || label.as_int() >= static_cast<int64_t>(labels.size()))
    fail("label is {}, expected 0 to {}, for which there are names", label.dump(), labels.size() - 1);
  return answer_of({}, text, labels[static_cast<size_t>(label.as_int())], has_template);
}

// How many messages both begin with; behind them both must go on with an answer.
size_t shared_turns(const Json::Array& chosen, const Json::Array& rejected) {
  const auto [end, other] = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  const auto shared = static_cast<size_t>(end - chosen.begin());
  if (end == chosen.end() || other == rejected.end())
    fail("{} has no answer after the prompt", end == chosen.end() ? "chosen" : "rejected");
  if (shared > 0 && !is_assistant(*end))
    fail("chosen and rejected differ at [{}], which is not the assistant's", shared);
  return shared;
}

// Bytes that both texts begin with, up to the last white space in them; all of it belongs to the answers.
size_t shared_bytes(const std::string& chosen, const std::string& rejected) {
  const auto [end, other] = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  const auto same = static_cast<size_t>(end - chosen.begin());
  constexpr std::string_view kSpace = " \n\t";
  const size_t space = same == 0 ? std::string::npos : chosen.find_last_of(kSpace, same - 1);
  if (space == std::string::npos)
    fail("there is no prompt, and chosen and rejected have no beginning in common that could be one");
  const size_t word = chosen.find_last_not_of(kSpace, space);
  return word == std::string::npos ? 0 : word + 1;
}

// Whether the messages that both answers share hold the prompt already.
bool holds_prompt(const Json& prompt, const Json::Array& messages, size_t shared) {
  const auto end = messages.begin() + static_cast<std::ptrdiff_t>(shared);
  if (prompt.is_string())
    return std::any_of(messages.begin(), end, [&](const Json& turn) {
      return turn.at("role") == Json("user") && turn.find("content") && turn.at("content") == prompt;
    });
  const Json::Array turns = read_messages(prompt, "prompt");
  return turns.size() <= shared && std::equal(turns.begin(), turns.end(), messages.begin());
}

// The prompt stands apart, or is what chosen and rejected both begin with, or both.
std::vector<Content> preference_of(const Json& row) {
  const Json &chosen = required_field(row, "chosen"), &rejected = required_field(row, "rejected");
  if (chosen == rejected) fail("chosen and rejected are the same; expected two answers that differ");
  const Json* prompt = field_of(row, "prompt");
  if (prompt && !holds_something(*prompt)) prompt = nullptr;
  if (chosen.is_string()) {
    if (prompt) return {pair_of(*prompt, chosen, "chosen"), pair_of(*prompt, rejected, "rejected")};
    const std::string &better = chosen.as_string(), &worse = check_string(rejected, "rejected");
    const size_t shared = shared_bytes(better, worse);
    return {text_of(better.substr(0, shared), better.substr(shared)),
            text_of(worse.substr(0, shared), worse.substr(shared))};
  }
  Json::Array better = read_messages(chosen, "chosen"), worse = read_messages(rejected, "rejected");
  const size_t shared = shared_turns(better, worse);
  if (!prompt && shared == 0) fail("there is no prompt, and chosen and rejected have no message in common");
  if (!prompt || holds_prompt(*prompt, better, shared))
    return {chat_of(std::move(better), shared), chat_of(std::move(worse), shared)};
  const Json::Array question = prompt->is_string() ? Json::Array{message("user", prompt->as_string())}
                                                   : read_messages(*prompt, "prompt");
  std::vector<Content> pair;
  for (const Json::Array& answer : {better, worse}) {
    pair.push_back(chat_of(question, question.size() + shared));
    pair.back().messages.insert(pair.back().messages.end(), answer.begin(), answer.end());
  }
  return pair;
}

Content prompt_of(const Json& row) {
  const Json& prompt = required_field(row, "prompt");
  if (prompt.is_string()) {
    if (prompt.as_string().empty()) fail("prompt is empty");
    return text_of(prompt.as_string(), "");
  }
  if (!prompt.is_array()) fail("prompt must be a string or a list of messages, found {}", prompt.kind_name());
  Json::Array messages = read_messages(prompt, "prompt");
  const size_t count = messages.size();
  return chat_of(std::move(messages), count);
}

std::vector<Content> contents_of(const Json& row, RowFormat format, bool has_template, const Labels& labels) {
  switch (format) {
    case RowFormat::kMessages:
    case RowFormat::kShareGpt:
      return {turns_of(row, format)};
    case RowFormat::kAlpaca:
      return {alpaca_of(row, has_template)};
    case RowFormat::kPromptCompletion:
      return {pair_of(required_field(row, "prompt"), required_field(row, "completion"), "completion")};
    case RowFormat::kText:
      return {text_of("", check_string(required_field(row, "text"), "text"))};
    case RowFormat::kPreference:
      return preference_of(row);
    case RowFormat::kPromptOnly:
      return {prompt_of(row)};
    case RowFormat::kClassification:
      return {class_of(row, has_template, labels)};
    case RowFormat::kAuto:
    case RowFormat::kTokens:
      break;
  }
  fail("the row holds tokens, and a question must be text");
}

}  // namespace

Json beside_prompt(const Json& row) {
  Json::Object fields = row.as_object();
  std::erase_if(fields, [](const auto& field) { return field.first == "prompt"; });
  return fields;
}

std::vector<Content> read_content(const Json& row, RowFormat format, bool has_template,
                                  const Labels& labels) {
  if (format == RowFormat::kAuto) return read_content(row, format_of(row), has_template, labels);
  std::vector<Content> contents = contents_of(row, format, has_template, labels);
  if (format != RowFormat::kAlpaca && format != RowFormat::kClassification)
    for (Content& content : contents) content = with_system(std::move(content), row);
  return contents;
}

}  // namespace temper::data
