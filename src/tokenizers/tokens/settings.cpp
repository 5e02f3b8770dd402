#include "tokenizers/tokens/settings.h"

#include "base/error.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

struct FramingClass {
  std::string_view name;
  bool adds_bos;  // unless add_bos_token says otherwise
};
constexpr FramingClass kFramingClasses[] = {
    {"LlamaTokenizer", true},  {"CodeLlamaTokenizer", true}, {"GemmaTokenizer", true},
    {"CohereTokenizer", true}, {"GPTNeoXTokenizer", false},
};

const FramingClass* framing_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const FramingClass& known : kFramingClasses)
    if (known.name == name) return &known;
  return nullptr;
}

// "<s>" or {"content": "<s>", …}.
int32_t special_token(const Json& settings, std::string_view key, const Vocabulary& vocabulary,
                      const std::string& place) {
  const Json* value = settings.find(key);
  if (value && value->is_object()) value = value->find("content");
  if (!value || !value->is_string()) fail("{} has no {}, which add_{} needs", place, key, key);
  const auto id = vocabulary.find(value->as_string());
  if (!id) fail("{}.{} is '{}', which the tokenizer does not have", place, key, value->as_string());
  return *id;
}

}  // namespace

std::optional<PostProcessor> frame_of_settings(const Json& settings, const Vocabulary& vocabulary,
                                               const std::string& where) {
  const std::string place = "[" + where + "]";
  if (!settings.is_object()) fail("{} must be an object, found {}", place, settings.kind_name());
  const auto is_set = [&](std::string_view key) {
    const Json* value = settings.find(key);
    return value && !value->is_null();
  };
  if (!is_set("add_bos_token") && !is_set("add_eos_token")) return std::nullopt;
  const FramingClass* framing = framing_class(string_option(settings, "tokenizer_class", "", place));
  if (!framing) return std::nullopt;
  PostProcessor frame;
  if (bool_option(settings, "add_bos_token", framing->adds_bos, place))
    frame.before.push_back(special_token(settings, "bos_token", vocabulary, place));
  if (bool_option(settings, "add_eos_token", false, place))
    frame.after.push_back(special_token(settings, "eos_token", vocabulary, place));
  return frame;
}

}  // namespace temper::tokenizers
