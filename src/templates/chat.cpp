#include "templates/chat.h"

#include "base/error.h"
#include "base/files.h"

namespace temper::templates {
namespace {

Json read_object(const std::string& path) {
  if (!exists(path)) return Json::Object();
  Json json = Json::parse_file(path);
  if (!json.is_object()) fail("[{}] must be an object, found {}", path, json.kind_name());
  return json;
}

// A token's text: a string, or the content of an added token. Null when it is neither.
Json token_text(const Json& token) {
  if (token.is_string()) return token;
  const Json* content = token.is_object() ? token.find("content") : nullptr;
  return content && content->is_string() ? *content : Json();
}

void add_tokens(const Json& file, Json& tokens) {
  for (const auto& [name, value] : file.as_object()) {
    const bool token = name.ends_with("_token") && !tokens.find(name);
    const Json text = token ? token_text(value) : Json();
    if (text.is_string()) tokens.set(name, text);
  }
}

std::optional<std::string> template_of(const Json& config, const std::string& path) {
  const Json* value = config.find("chat_template");
  if (!value || value->is_null()) return std::nullopt;
  if (value->is_string()) return value->as_string();
  if (!value->is_array())
    fail("[{}] chat_template must be a string or an array, found {}", path, value->kind_name());
  for (const Json& entry : value->as_array()) {
    if (!entry.is_object() || !entry.find("name") || !entry.find("template"))
      fail("[{}] chat_template must hold objects with name and template", path);
    if (entry.at("name") == Json("default")) return entry.at("template").as_string();
  }
  fail("[{}] chat_template has no entry named 'default'", path);
}

Json variables(const ChatTemplate& chat, const Json& messages, bool add_generation_prompt,
               const Json& extra) {
  if (!messages.is_array()) fail("the messages of a chat must be an array, found {}", messages.kind_name());
  if (!extra.is_object()) fail("the variables of a chat must be an object, found {}", extra.kind_name());
  Json values = chat.special_tokens;
  for (const char* name : {"tools", "documents"}) values.set(name, nullptr);
  for (const auto& [name, value] : extra.as_object()) values.set(name, value);
  values.set("messages", messages);
  values.set("add_generation_prompt", add_generation_prompt);
  return values;
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::load(const std::string& folder) {
  const std::string own = join_path(folder, "chat_template.jinja");
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  const Json config = read_object(config_path);
  const bool has_own = exists(own);
  const auto source = has_own ? std::optional(read_file(own)) : template_of(config, config_path);
  if (!source) return std::nullopt;
  Json tokens = Json::Object();
  add_tokens(config, tokens);
  add_tokens(read_object(join_path(folder, "special_tokens_map.json")), tokens);
  return ChatTemplate{Template::parse(*source, has_own ? own : config_path + ": chat_template"),
                      std::move(tokens)};
}

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& extra) const {
  return source.render(variables(*this, messages, add_generation_prompt, extra));
}

Rendered ChatTemplate::render_with_generation(const Json& messages, bool add_generation_prompt,
                                              const Json& extra) const {
  return source.render_with_generation(variables(*this, messages, add_generation_prompt, extra));
}

}  // namespace temper::templates
