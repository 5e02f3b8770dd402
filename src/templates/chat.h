#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "templates/template.h"

namespace temper::templates {

// A model's chat template and the special tokens it may name (bos_token, eos_token, unk_token, pad_token, …).
struct ChatTemplate {
  Template source;
  Json special_tokens;  // name → text

  // From a model's folder: chat_template.jinja, or chat_template in tokenizer_config.json (of a list the one
  // named "default"); the tokens from tokenizer_config.json, or else special_tokens_map.json. None without
  // a template.
  static std::optional<ChatTemplate> load(const std::string& folder);

  // `messages` is an array; the members of the object `extra` (tools, enable_thinking, …) are variables, too,
  // and go before the special tokens.
  std::string render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::Object()) const;
  Rendered render_with_generation(const Json& messages, bool add_generation_prompt,
                                  const Json& extra = Json::Object()) const;
};

}  // namespace temper::templates
