#include "tokenizers/tokens/post_processor.h"

#include "base/error.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

// The ids that a template's name for a special token means.
std::vector<int32_t> ids_of(const Json& component, const Json& part, const std::string& place) {
  const std::string tokens = place + ".special_tokens";
  const std::string name = string_option(part, "id", "", place);
  const Json& token = required(required(component, "special_tokens", place), name, tokens);
  const std::string list = fmt::format("{}.{}.ids", tokens, name);
  std::vector<int32_t> ids;
  for (const Json& id : as_list(required(token, "ids", tokens + "." + name), list))
    ids.push_back(as_token_id(id, list));
  return ids;
}

// Each processor of a sequence wraps what the one before it made.
void apply_template(const Json& component, const std::string& place, PostProcessor& result) {
  PostProcessor own;
  int texts = 0;
  for (const Json& part : as_list(required(component, "single", place), place + ".single")) {
    if (const Json* token = part.find("SpecialToken")) {
      auto& side = texts == 0 ? own.before : own.after;
      const auto ids = ids_of(component, *token, place);
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      const Json* sequence = part.find("Sequence");
      if (!sequence || string_option(*sequence, "id", "", place) != "A")
        fail("{}.single may hold SpecialToken and the Sequence A only", place);
      ++texts;
    }
  }
  if (texts != 1) fail("{}.single must hold the Sequence A once, found {} times", place, texts);
  result.before.insert(result.before.begin(), own.before.begin(), own.before.end());
  result.after.insert(result.after.end(), own.after.begin(), own.after.end());
}

// Of the pairs ["token", id] under "cls" and "sep", which go before and after.
void apply_frame(const Json& component, const std::string& place, PostProcessor& result) {
  const auto id_of = [&](const std::string& key) {
    const std::string inside = place + "." + key;
    const Json::Array& pair = as_list(required(component, key, place), inside);
    if (pair.size() != 2) fail("{} must be [\"token\", id], found {} elements", inside, pair.size());
    return as_token_id(pair[1], inside + "[1]");
  };
  result.before.insert(result.before.begin(), id_of("cls"));
  result.after.push_back(id_of("sep"));
}

}  // namespace

PostProcessor PostProcessor::from_json(const Json& json, std::string_view where) {
  PostProcessor result;
  for_each_component(json, "processors", where, [&](const Json& component, const std::string& place) {
    const std::string& type = component_type(component, place);
    if (type == "TemplateProcessing")
      apply_template(component, place, result);
    else if (type == "RobertaProcessing" || type == "BertProcessing")
      apply_frame(component, place, result);
    else if (type != "ByteLevel")
      refuse_component(place, type,
                       "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence");
  });
  return result;
}

}  // namespace temper::tokenizers
