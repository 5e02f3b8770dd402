#include "rewards/right_answer.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::rewards {
namespace {

const Json* field_of(const Json& row, std::string_view name) {
  const Json* value = row.find(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

// The last message's text, when it is the assistant's.
const Json* last_answer(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty() || !messages.as_array().back().is_object())
    return nullptr;
  const Json& last = messages.as_array().back();
  const Json *role = last.find("role"), *content = last.find("content");
  const bool is_answer = role != nullptr && *role == Json("assistant") && content != nullptr;
  return is_answer && content->is_string() ? content : nullptr;
}

bool add(const Json& value, std::vector<std::string>& texts) {
  if (value.is_string())
    texts.push_back(value.as_string());
  else if (value.is_number() || value.is_bool())
    texts.push_back(value.dump());
  else
    return false;
  return true;
}

RightAnswers answers_in(const Json& value, std::string_view field) {
  RightAnswers out;
  if (value.is_array() && !value.as_array().empty()) {
    for (const Json& item : value.as_array())
      if (!add(item, out.texts))
        return {.error = fmt::format("the row's field '{}' has {} in its list, expected texts and numbers",
                                     field, item.kind_name())};
  } else if (!add(value, out.texts)) {
    out.error = fmt::format("the row's field '{}' is {}, expected a text, a number or a list of these", field,
                            value.is_array() ? "an empty list" : value.kind_name());
  }
  return out;
}

std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : row.as_object()) names.push_back(name);
  return join(names);
}

}  // namespace

RightAnswers right_answers(const RewardConfig& config, const Json& row) {
  const std::string name = config.text.answer.value_or("answer");
  if (const Json* value = field_of(row, name)) return answers_in(*value, name);
  if (config.text.answer)
    return {.error = fmt::format("the row has no field '{}'; it has {}", name, fields_of(row))};
  if (const Json* completion = field_of(row, "completion")) {
    if (completion->is_string()) return answers_in(*completion, "completion");
    if (const Json* last = last_answer(*completion)) return answers_in(*last, "completion");
  }
  if (const Json* messages = field_of(row, "messages"))
    if (const Json* last = last_answer(*messages)) return answers_in(*last, "messages");
  return {.error = fmt::format("the row has neither a field 'answer' nor a completion, nor a last message of "
                               "the assistant's; it has {}",
                               fields_of(row))};
}

}  // namespace temper::rewards
