#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "templates/template.h"

namespace temper::templates {

// A model's chat template and the special tokens it may name (bos_token, eos_token, unk_token, pad_token, …).
struct ChatTemplate {
  Template source;
  Json special_tokens;    // name → text
  std::string text = {};  // of the source

  // From a model's folder: chat_template.jinja, or chat_template in tokenizer_config.json (of a list the one
  // named "default"); the tokens from tokenizer_config.json, or else special_tokens_map.json. None without
  // a template.
  static std::optional<ChatTemplate> load(const std::string& folder);

  // Instead of that, the one that a file holds, or that the folder has under this name (an entry of
  // tokenizer_config.json's list, or additional_chat_templates/NAME.jinja). An error lists the names there
  // are.
  static ChatTemplate choose(const std::string& folder, const std::string& file_or_name);

  // `messages` is an array; the members of the object `extra` (tools, enable_thinking, …) are variables, too,
  // and go before the special tokens.
  std::string render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::Object()) const;
  Rendered render_with_generation(const Json& messages, bool add_generation_prompt,
                                  const Json& extra = Json::Object()) const;
};

}  // namespace temper::templates
