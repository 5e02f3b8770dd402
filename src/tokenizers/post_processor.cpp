#include "tokenizers/post_processor.h"

#include "base/error.h"
#include "tokenizers/component.h"

namespace temper::tokenizers {
namespace {

// The ids that a template's name for a special token stands for.
std::vector<int32_t> ids_of(const Json& component, const Json& part, const std::string& place) {
  const std::string name = string_option(part, "id", "", place);
  const Json& token = required(required(component, "special_tokens", place), name, place + ".special_tokens");
  const Json& list = required(token, "ids", place + ".special_tokens");
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      fail("{}.special_tokens: '{}' has an id that is not a token id", place, name);
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return ids;
}

// Each processor of a sequence wraps what the one before it made.
void apply_template(const Json& component, const std::string& place, PostProcessor& result) {
  PostProcessor own;
  int texts = 0;
  for (const Json& part : required(component, "single", place).as_array()) {
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

}  // namespace

PostProcessor PostProcessor::from_json(const Json& json, std::string_view where) {
  PostProcessor result;
  for_each_component(json, "processors", where, [&](const Json& component, const std::string& place) {
    const std::string& type = component_type(component, place);
    if (type == "TemplateProcessing")
      apply_template(component, place, result);
    else if (type != "ByteLevel")
      refuse_component(place, type, "TemplateProcessing, ByteLevel, Sequence");
  });
  return result;
}

}  // namespace temper::tokenizers
