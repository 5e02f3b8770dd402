#include "templates/chat.h"

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

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

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

// Those in tokenizer_config.json: one that is named "default", or a list.
NamedTexts templates_of(const Json& config, const std::string& path) {
  const Json* value = config.find("chat_template");
  if (!value || value->is_null()) return {};
  if (value->is_string()) return {{"default", value->as_string()}};
  if (!value->is_array())
    fail("[{}] chat_template must be a string or an array, found {}", path, value->kind_name());
  NamedTexts texts;
  for (const Json& entry : value->as_array()) {
    if (!entry.is_object() || !entry.find("name") || !entry.find("template"))
      fail("[{}] chat_template must hold objects with name and template", path);
    texts.emplace_back(entry.at("name").as_string(), entry.at("template").as_string());
  }
  return texts;
}

const std::string* find_text(const NamedTexts& texts, std::string_view name) {
  for (const auto& [known, text] : texts)
    if (known == name) return &text;
  return nullptr;
}

// What a model's folder says about templates.
struct Folder {
  explicit Folder(const std::string& path)
      : config_path(join_path(path, "tokenizer_config.json")), config(read_object(config_path)) {
    add_tokens(config, tokens);
    add_tokens(read_object(join_path(path, "special_tokens_map.json")), tokens);
  }
  ChatTemplate make(const std::string& text, const std::string& where) const {
    return ChatTemplate{Template::parse(text, where), tokens, text};
  }

  std::string config_path;
  Json config, tokens = Json::Object();
};

constexpr std::string_view kMoreTemplates = "additional_chat_templates", kEnding = ".jinja";

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

std::optional<ChatTemplate> ChatTemplate::load(const std::string& path) {
  const Folder folder(path);
  const std::string own = join_path(path, "chat_template.jinja");
  if (exists(own)) return folder.make(read_file(own), own);
  const NamedTexts texts = templates_of(folder.config, folder.config_path);
  if (texts.empty() && !folder.config.find("chat_template")) return std::nullopt;
  const std::string* text = find_text(texts, "default");
  if (!text && folder.config.at("chat_template").is_null()) return std::nullopt;
  if (!text) fail("[{}] chat_template has no entry named 'default'", folder.config_path);
  return folder.make(*text, folder.config_path + ": chat_template");
}

ChatTemplate ChatTemplate::choose(const std::string& path, const std::string& file_or_name) {
  const Folder folder(path);
  if (exists(file_or_name) && !is_directory(file_or_name))
    return folder.make(read_file(file_or_name), file_or_name);
  NamedTexts texts = templates_of(folder.config, folder.config_path);
  const std::string more = join_path(path, kMoreTemplates);
  if (is_directory(more))
    for (const std::string& name : list_directory(more))
      if (name.ends_with(kEnding))
        texts.emplace_back(name.substr(0, name.size() - kEnding.size()), read_file(join_path(more, name)));
  if (const std::string* text = find_text(texts, file_or_name))
    return folder.make(*text, fmt::format("{}: chat_template {}", path, file_or_name));
  std::vector<std::string> names;
  for (const auto& entry : texts) names.push_back(entry.first);
  fail("[data.chat_template] '{}' is no file, and the model has no chat template of that name; it has [{}]",
       file_or_name, join(names));
}

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& extra) const {
  return source.render(variables(*this, messages, add_generation_prompt, extra));
}

Rendered ChatTemplate::render_with_generation(const Json& messages, bool add_generation_prompt,
                                              const Json& extra) const {
  return source.render_with_generation(variables(*this, messages, add_generation_prompt, extra));
}

}  // namespace temper::templates
