#include "data/unused_fields.h"

#include <algorithm>

#include "base/error.h"
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
    case RowFormat::kPromptOnly:  // all others are kept beside it
      break;
    case RowFormat::kMessages:
      return {field_of(row, "messages") ? "messages" : "conversations"};
    case RowFormat::kShareGpt:
      return {field_of(row, "messages") ? "messages" : "conversations", "system"};
    case RowFormat::kAlpaca:
      return {"instruction", "output", "input", "system", "history"};
    case RowFormat::kPromptCompletion:
      if (options.goal == Goal::kLanguageModel) return {"prompt", "completion"};
      return {"prompt", "completion", "label"};
    case RowFormat::kText:
      return {"text"};
    case RowFormat::kPreference:
      return {"prompt", "chosen", "rejected"};
    case RowFormat::kClassification:
      return {"text", "label"};
    case RowFormat::kTokens:
      return {"input_ids", "labels", "attention_mask", "position_ids"};
  }
  return {};
}

bool holds_something(const Json& value) {
  return !value.is_null() && value != Json("") && value != Json(Json::Array{}) &&
         value != Json(Json::Object{});
}

class Finder {
 public:
  explicit Finder(const RowOptions& options) : options_(options) {}

  bool template_reads(std::string_view name) const {
    return !options_.template_reads || options_.template_reads(name);
  }

  void add_messages(const std::string& field, const Json& list, bool sharegpt) {
    for (const Json& message : list.as_array()) {
      if (!message.is_object()) continue;
      for (const auto& [name, value] : message.as_object())
        if (holds_something(value) && !(sharegpt ? is_of_turn(name) : reads_of_message(name)))
          add(fmt::format("{}[].{}", field, name));
    }
  }

  void add(std::string name) {
    if (std::find(found_.begin(), found_.end(), name) == found_.end()) found_.push_back(std::move(name));
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
};

}  // namespace

std::vector<std::string> unused_fields(const Json& row, RowFormat format, const RowOptions& options) {
  if (format == RowFormat::kPromptOnly) return {};
  const Names read = read_fields(row, format, options);
  const bool chat = format != RowFormat::kText && format != RowFormat::kTokens;
  Finder finder(options);
  for (const auto& [name, value] : row.as_object()) {
    if (!holds_something(value)) continue;
    if (contains(read, name)) {
      const bool turns = value.is_array() && chat && name != "history";
      if (turns) finder.add_messages(name, value, format == RowFormat::kShareGpt);
    } else if (!chat || (name != "chat_template_kwargs" &&
                         !(contains({"tools", "documents"}, name) && finder.template_reads(name)))) {
      finder.add(name);
    }
  }
  return finder.take();
}

}  // namespace temper::data
