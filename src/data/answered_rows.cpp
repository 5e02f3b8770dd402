#include "data/answered_rows.h"

#include "base/error.h"
#include "data/fields.h"
#include "data/messages.h"
#include "data/spellings.h"

namespace temper::data {
namespace {

// The messages with the answer behind the last that is not the assistant's.
void answer_turns(Json& row, std::string_view role, std::string_view content, const std::string& text) {
  Json turns = *field_of(row, field_of(row, "messages") ? "messages" : "conversations");
  Json::Array& list = turns.as_array();
  const auto is_answer = [&](const Json& turn) {
    const Json* who = turn.is_object() ? field_of(turn, role) : nullptr;
    return who && (*who == Json("assistant") || *who == Json("gpt"));
  };
  while (!list.empty() && is_answer(list.back())) list.pop_back();
  list.push_back(
      Json::Object{{std::string(role), role == "from" ? "gpt" : "assistant"}, {std::string(content), text}});
  row.set(field_of(row, "messages") ? "messages" : "conversations", std::move(turns));
}

void complete_prompt(Json& row, const std::string& text) {
  for (const char* other : {"chosen", "rejected"}) row.set(other, nullptr);
  const bool is_text = required_field(row, "prompt").is_string();
  row.set("completion",
          is_text ? Json(text) : Json(Json::Array{Json::Object{{"role", "assistant"}, {"content", text}}}));
}

}  // namespace

bool is_answered(const Json& row) {
  const auto holds = [&](const char* name, Json::Kind kind) {
    const Json* value = row.find(name);
    return value && value->kind() == kind;
  };
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
      answer_turns(row, "role", "content", text);
      break;
    case RowFormat::kShareGpt:
      answer_turns(row, "from", "value", text);
      break;
    case RowFormat::kAlpaca:
      row.set("output", text);
      break;
    case RowFormat::kPromptOnly:
    case RowFormat::kPromptCompletion:
    case RowFormat::kPreference:
      complete_prompt(row, text);
      break;
    case RowFormat::kText:
      row.set("prompt", row.at("text"));
      row.set("text", nullptr);
      row.set("completion", text);
      break;
    default:
      fail("the row is an answer of 'temper batch' to a row of format {}, which has no place for it",
           name_of(format));
  }
  return row;
}

}  // namespace temper::data
