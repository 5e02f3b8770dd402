#include "data/rows/answered_rows.h"

#include "base/error.h"
#include "data/chat/content.h"
#include "data/chat/fields.h"
#include "data/chat/messages.h"
#include "data/chat/spellings.h"

namespace temper::data {
namespace {

struct Fields {
  const Json& row;
  bool operator()(const char* name, Json::Kind kind) const {
    const Json* value = row.find(name);
    return value && value->kind() == kind;
  }
};

Json answer_of(const std::string& text) { return Json::Object{{"role", "assistant"}, {"content", text}}; }

// The messages up to the last that is not the assistant's, which is what was asked, and the answer.
void answer_turns(Json& row, bool sharegpt, const std::string& text) {
  const char* const field = field_of(row, "messages") ? "messages" : "conversations";
  Json turns = *field_of(row, field);
  Json::Array& list = turns.as_array();
  const auto is_answer = [&](const Json& turn) {
    if (sharegpt) return is_sharegpt_answer(turn);
    return turn.is_object() && text_in(turn, "role") == "assistant";
  };
  while (!list.empty() && is_answer(list.back())) list.pop_back();
  list.push_back(sharegpt ? Json(Json::Object{{"from", "gpt"}, {"value", text}}) : answer_of(text));
  row.set(field, std::move(turns));
}

// The row as a prompt and its completion, whichever of the two forms its prompt has.
void complete_prompt(Json& row, RowFormat format, const std::string& text) {
  Content content = read_content(row, format, true, {}).front();
  for (const char* other : {"text", "chosen", "rejected"}) row.set(other, nullptr);
  if (!content.chat) {
    if (format != RowFormat::kText) content.text.resize(content.target_begin);
    row.set("prompt", std::move(content.text));
    row.set("completion", text);
    return;
  }
  Json::Array& messages = content.messages;
  messages.resize(content.first_turn);
  while (!messages.empty() && is_assistant(messages.back())) messages.pop_back();
  row.set("prompt", std::move(messages));
  row.set("completion", Json::Array{answer_of(text)});
}

}  // namespace

bool is_answered(const Json& row) {
  const Fields holds{row};
  return holds("input", Json::Kind::kObject) && holds("ids", Json::Kind::kArray) &&
         holds("log_probs", Json::Kind::kArray) && holds("text", Json::Kind::kString) &&
         holds("finish", Json::Kind::kString);
}

Json answered_row(const Json& line) {
  if (const std::string& finish = line.at("finish").as_string(); finish != "stop")
    fail(
        "the answer was cut (finish: {}), and a model that learns it learns to stop there; leave it out, or "
        "set "
        "data.on_bad_row: skip",
        finish);
  Json row = line.at("input");
  const std::string& text = line.at("text").as_string();
  if (needs_respelling(row)) respell(row);
  switch (const RowFormat format = format_of(row)) {
    case RowFormat::kMessages:
    case RowFormat::kShareGpt:
      answer_turns(row, format == RowFormat::kShareGpt, text);
      break;
    case RowFormat::kAlpaca:
      row.set("output", text);
      break;
    case RowFormat::kPromptOnly:
    case RowFormat::kPromptCompletion:
    case RowFormat::kPreference:
    case RowFormat::kText:
      complete_prompt(row, format, text);
      break;
    default:
      fail("the row is an answer of 'temper batch' to a row of format {}, which has no place for it",
           name_of(format));
  }
  return row;
}

void refuse_rollout(const Json& row) {
  const Fields holds{row};
  if (!holds("rollout", Json::Kind::kInt) || !holds("group", Json::Kind::kInt) ||
      !holds("sample", Json::Kind::kInt))
    return;
  const bool answer = holds("text", Json::Kind::kString) && holds("passages", Json::Kind::kArray);
  if (!answer && !holds("scores", Json::Kind::kArray)) return;
  fail(
      "the row is a line of rollouts.jsonl, a record of a run with recipe grpo, which does not hold the "
      "whole "
      "prompt; to learn from answers, let 'temper batch' answer the run's data, whose lines are rows; "
      "data.train[].format: text takes the text of such lines without their prompts");
}

}  // namespace temper::data
