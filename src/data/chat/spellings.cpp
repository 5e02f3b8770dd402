#include "data/chat/spellings.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/chat/chat.h"

namespace temper::data {
namespace {

struct Pair {
  std::string_view question, answer;
};
constexpr std::array<Pair, 4> kPairs = {
    {{"question", "answer"}, {"query", "response"}, {"problem", "solution"}, {"instruction", "response"}}};
constexpr std::array<std::string_view, 3> kAnswers = {"answer", "response", "solution"};
constexpr std::array<Pair, 2> kBesideThem = {{{"context", "input"}, {"system_prompt", "system"}}};

// What makes a row one of another format.
constexpr std::array<std::string_view, 9> kOfOthers = {
    "messages", "conversations", "prompt", "completion", "chosen", "rejected", "text", "output", "input_ids"};

constexpr std::array<std::string_view, 2> kTurns = {"messages", "conversations"};
constexpr std::array<std::string_view, 4> kTextsOrTurns = {"prompt", "completion", "chosen", "rejected"};

// Fields that tables of texts, such as CSV, can hold as JSON text only; a cell without text means no value.
constexpr std::array<std::string_view, 8> kStructures = {
    "history",   "tools",  "documents",      "chat_template_kwargs",
    "input_ids", "labels", "attention_mask", "position_ids"};

bool has(const Json& row, std::string_view name) { return field_of(row, name) != nullptr; }

// The fields that hold the question and its answer.
std::optional<Pair> pair_of(const Json& row) {
  const auto belongs_to_others = [&](std::string_view name) { return has(row, name); };
  if (std::any_of(kOfOthers.begin(), kOfOthers.end(), belongs_to_others)) return std::nullopt;
  std::optional<Pair> found;
  for (const Pair& pair : kPairs) {
    if (!has(row, pair.question)) continue;
    if (found) return std::nullopt;
    found = pair;
  }
  if (!found || has(row, found->answer)) return found;
  found->answer = {};
  for (const std::string_view answer : kAnswers) {
    if (!has(row, answer)) continue;
    if (!found->answer.empty()) return std::nullopt;
    found->answer = answer;
  }
  return found->answer.empty() ? std::nullopt : found;
}

bool has_answered_instruction(const Json& row) { return has(row, "instruction") && has(row, "output"); }

void rename(Json& row, std::string_view from, std::string_view to) {
  if (from == to || has(row, to)) return;
  std::erase_if(row.as_object(), [&](const auto& field) { return field.first == to; });  // it is null
  for (auto& [name, value] : row.as_object())
    if (name == from) name = to;
}

bool is_text_of_list(const Json& row, std::string_view name) {
  const Json* value = field_of(row, name);
  return value && value->is_string() && trim(value->as_string()).starts_with('[');
}

bool are_turns(const Json& value) {
  if (!value.is_array() || value.as_array().empty()) return false;
  return std::all_of(value.as_array().begin(), value.as_array().end(), [](const Json& turn) {
    return turn.is_object() && (turn.find("role") || turn.find("from"));
  });
}

// Null where the text is no JSON.
Json parsed(const std::string& text) {
  try {
    return Json::parse(text, "");
  } catch (const Error&) {
    return {};
  }
}

void read_structure(Json& row, std::string_view name) {
  const Json* value = field_of(row, name);
  if (!value || !value->is_string()) return;
  if (trim(value->as_string()).empty()) return row.set(name, nullptr);
  if (Json read = parsed(value->as_string()); !read.is_null()) row.set(name, std::move(read));
}

void read_turns(Json& row, std::string_view name) {
  const Json* value = field_of(row, name);
  if (!value || !value->is_string()) return;
  Json list = parsed(value->as_string());
  if (!list.is_array()) {
    const bool python = trim(value->as_string()).starts_with("[{'");
    fail("{} is a text, expected a list of messages, or one as JSON text{}", name,
         python ? "; this one is as Python prints it: write it with json.dumps" : "");
  }
  row.set(name, std::move(list));
}

}  // namespace

bool needs_respelling(const Json& row) {
  const auto is_text = [&](std::string_view name) {
    const Json* value = field_of(row, name);
    return value && value->is_string();
  };
  return std::any_of(kTurns.begin(), kTurns.end(), is_text) ||
         std::any_of(kStructures.begin(), kStructures.end(), is_text) ||
         std::any_of(kTextsOrTurns.begin(), kTextsOrTurns.end(),
                     [&](std::string_view name) { return is_text_of_list(row, name); }) ||
         pair_of(row).has_value() || has_answered_instruction(row);
}

void respell(Json& row) {
  for (const std::string_view name : kTurns) read_turns(row, name);
  for (const std::string_view name : kStructures) read_structure(row, name);
  for (const std::string_view name : kTextsOrTurns)
    if (is_text_of_list(row, name))
      if (Json list = parsed(row.at(name).as_string()); are_turns(list)) row.set(name, std::move(list));
  const std::optional<Pair> pair = pair_of(row);
  if (pair) {
    rename(row, pair->question, "instruction");
    rename(row, pair->answer, "output");
  }
  if (!pair && !has_answered_instruction(row)) return;
  for (const auto& [other, ours] : kBesideThem) rename(row, other, ours);
}

}  // namespace temper::data
