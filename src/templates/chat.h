#pragma once
#include <optional>
#include <string>

#include "base/json/json.h"
#include "templates/template.h"

namespace temper::templates {

// A model's chat template and the special tokens it may name (bos_token, eos_token, unk_token, pad_token, …).
struct ChatTemplate {
  Template source;
  Json special_tokens;    // name → text
  std::string text = {};  // of the source
  // The model's template named tool_use, which conversations with tools take, as in transformers.
  std::optional<Template> tool_use = {};
  std::string notes = {};  // for people: which templates are used, where there are several; or empty

  // From a model's folder: chat_template.jinja, or chat_template in tokenizer_config.json (of a list the one
  // named "default"), or else in chat_template.json; tool_use from additional_chat_templates, or that list
  // where no file replaces it. The tokens are from tokenizer_config.json, or else special_tokens_map.json.
  // None without a template.
  static std::optional<ChatTemplate> load(const std::string& folder);

  // Instead of that, for all conversations, the one that a file holds, or that the folder has under this name
  // (an entry of tokenizer_config.json's list, or additional_chat_templates/NAME.jinja). An error lists the
  // names there are.
  static ChatTemplate choose(const std::string& folder, const std::string& file_or_name);

  // Whether the name stands in a template that conversations take.
  bool mentions(std::string_view name) const;

  // `messages` is an array; the members of the object `extra` (tools, enable_thinking, …) are variables, too,
  // and go before the special tokens.
  std::string render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::Object()) const;
  Rendered render_with_generation(const Json& messages, bool add_generation_prompt,
                                  const Json& extra = Json::Object()) const;

 private:
  const Template& template_for(const Json& extra) const;
};

// Files of a folder that hold templates of other names: "additional_chat_templates/tool_use.jinja".
std::vector<std::string> named_template_files(const std::string& folder);
inline constexpr std::string_view kToolUseFile = "additional_chat_templates/tool_use.jinja";

}  // namespace temper::templates
