#include "data/rows/unused_fields.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "data/chat/empty_values.h"
#include "templates/messages.h"

namespace temper::data {
namespace {

using Names = std::vector<std::string_view>;

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Names read_fields(const Json& row, RowFormat format, const RowOptions& options) {
  switch (format) {
    case RowFormat::kAuto:
    case RowFormat::kPromptOnly:  // all other fields are kept
      break;
    case RowFormat::kMessages:
    case RowFormat::kShareGpt:
      return {field_of(row, "messages") ? "messages" : "conversations", "system"};
    case RowFormat::kAlpaca:
      return {"instruction", "output", "input", "system", "history"};
    case RowFormat::kPromptCompletion:
      if (options.goal == Goal::kLanguageModel) return {"prompt", "completion", "system"};
      return {"prompt", "completion", "system", "label"};
    case RowFormat::kText:
      return {"text"};
    case RowFormat::kPreference:
      return {"prompt", "chosen", "rejected", "system"};
    case RowFormat::kClassification:
      return {"text", "label"};
    case RowFormat::kTokens:
      return {"input_ids", "labels", "attention_mask", "position_ids"};
  }
  return {};
}

// Whether the row is a conversation, if the model has a template for one.
bool is_conversation(const Json& row, RowFormat format) {
  const auto is_list = [&](std::string_view name) {
    const Json* field = field_of(row, name);
    return field && field->is_array();
  };
  if (format == RowFormat::kPromptCompletion) return is_list("prompt");
  if (format == RowFormat::kPreference) return is_list("chosen");
  return format != RowFormat::kText && format != RowFormat::kTokens;
}

class UnusedFinder {
 public:
  explicit UnusedFinder(const RowOptions& options) : options_(options) {}

  bool template_reads(std::string_view name) const {
    return !options_.template_reads || options_.template_reads(name);
  }

  void add_messages(const std::string& field, const Json& list, bool sharegpt) {
    for (const Json& message : list.as_array()) {
      if (!message.is_object()) continue;
      for (const auto& [name, value] : message.as_object())
        if (holds_something(value) && !(sharegpt ? is_of_turn(name) : reads_of_message(name)))
          add(fmt::format("{}[].{}", field, name));
      if (const Json* parts = message.find("content"))
        add_members(*parts, field + "[].content[]", {"type", "text"});
      if (const Json* calls = message.find("tool_calls"); calls && template_reads("tool_calls"))
        add_members(*calls, field + "[].tool_calls[]", {"type", "function", "name", "arguments"});
    }
  }

  // Fields of objects in a list that neither we read, by these names, nor the template.
  void add_members(const Json& list, const std::string& place, const Names& read) {
    if (!list.is_array()) return;
    for (const Json& item : list.as_array())
      for (const auto& [name, value] : item.is_object() ? item.as_object() : Json::Object())
        if (holds_something(value) && !contains(read, name) && !template_reads(name))
          add(fmt::format("{}.{}", place, name));
  }

  void add_variables(const Json& kwargs) {
    if (kwargs.is_object())
      for (const auto& [name, value] : kwargs.as_object())
        if (!value.is_null() && !template_reads(name)) add("chat_template_kwargs." + name);
  }

  void add(std::string name) {
    if (seen_.insert(name).second) found_.push_back(std::move(name));
  }

  std::vector<std::string> take() { return std::move(found_); }

 private:
  static bool is_of_turn(std::string_view name) {
    return contains({"from", "value", "weight", "train"}, name);
  }

  bool reads_of_message(std::string_view name) const {
    if (contains({"role", "content", "weight", "train"}, name)) return true;
    if (name == "function_call") return template_reads(name) || template_reads("tool_calls");
    const auto& reasoning = templates::kReasoningFields;
    if (std::find(reasoning.begin(), reasoning.end(), name) == reasoning.end()) return template_reads(name);
    return std::any_of(reasoning.begin(), reasoning.end(),
                       [&](std::string_view each) { return template_reads(each); });
  }

  const RowOptions& options_;
  std::vector<std::string> found_;
  std::unordered_set<std::string> seen_;  // what is in found_
};

}  // namespace

std::vector<std::string> unused_fields(const Json& row, RowFormat format, const RowOptions& options) {
  if (format == RowFormat::kPromptOnly) return {};
  const Names read = read_fields(row, format, options);
  const bool chat = is_conversation(row, format);
  UnusedFinder finder(options);
  for (const auto& [name, value] : row.as_object()) {
    if (!holds_something(value)) continue;
    if (contains(read, name) && (chat || name != "system")) {
      const bool turns = value.is_array() && chat && name != "history";
      if (turns) finder.add_messages(name, value, format == RowFormat::kShareGpt);
    } else if (chat && name == "chat_template_kwargs") {
      finder.add_variables(value);
    } else if (!chat || !contains({"tools", "documents"}, name) || !finder.template_reads(name)) {
      finder.add(name);
    }
  }
  return finder.take();
}

}  // namespace temper::data
