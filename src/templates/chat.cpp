#include "templates/chat.h"

#include <unordered_map>
#include <unordered_set>

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

// Those of files before count. Objects that others write may have any number of members: each is looked up
// once, not compared with all.
void add_tokens(const Json& file, Json& tokens) {
  std::unordered_set<std::string> known;
  for (const auto& [name, value] : tokens.as_object()) known.insert(name);
  for (const auto& [name, value] : file.as_object()) {
    const bool token = name.ends_with("_token") && !known.contains(name);
    Json text = token ? token_text(value) : Json();
    if (text.is_string()) tokens.as_object().emplace_back(name, std::move(text));
  }
}

// As many calls of set().
void set_all(const Json::Object& members, Json& values) {
  std::unordered_map<std::string, size_t> places;
  Json::Object& object = values.as_object();
  for (size_t i = 0; i < object.size(); ++i) places.emplace(object[i].first, i);
  for (const auto& [name, value] : members) {
    const auto [place, is_new] = places.emplace(name, object.size());
    if (is_new)
      object.emplace_back(name, value);
    else
      object[place->second].second = value;
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

constexpr std::string_view kMoreTemplates = "additional_chat_templates", kEnding = ".jinja";
constexpr std::string_view kDefault = "default", kToolUse = "tool_use";

// What a model's folder says about templates.
struct Folder {
  explicit Folder(const std::string& folder)
      : path(folder),
        config_path(join_path(folder, "tokenizer_config.json")),
        config(read_object(config_path)),
        listed(templates_of(config, config_path)) {
    add_tokens(config, tokens);
    add_tokens(read_object(join_path(folder, "special_tokens_map.json")), tokens);
    for (const std::string& file : named_template_files(folder)) {
      const std::string name = file_name(file);
      filed.emplace_back(name.substr(0, name.size() - kEnding.size()),
                         read_file(join_path(folder, file), kLongestText));
    }
    const std::string json_path = join_path(folder, "chat_template.json");
    const NamedTexts of_processor = templates_of(read_object(json_path), json_path);
    if (const std::string* text = find_text(of_processor, kDefault)) processor = *text;
  }
  ChatTemplate make(const std::string& text, const std::string& where) const {
    return ChatTemplate{Template::parse(text, where), tokens, text};
  }
  // Files replace the list, as in transformers.
  const NamedTexts& named() const { return has_files() ? filed : listed; }
  bool has_files() const { return exists(own) || !filed.empty(); }

  std::string path, config_path;
  Json config, tokens = Json::Object();
  std::string own = join_path(path, "chat_template.jinja"), processor = {};
  NamedTexts listed, filed = {};
};

// The template that conversations take unless another is named, and where it stands.
std::optional<std::pair<std::string, std::string>> default_of(const Folder& folder) {
  if (exists(folder.own)) return std::pair(read_file(folder.own, kLongestText), folder.own);
  if (const std::string* text = find_text(folder.listed, kDefault))
    return std::pair(*text, folder.config_path + ": chat_template");
  const Json* value = folder.config.find("chat_template");
  if (value && !value->is_null()) fail("[{}] chat_template has no entry named 'default'", folder.config_path);
  if (folder.processor.empty()) return std::nullopt;
  return std::pair(folder.processor, join_path(folder.path, "chat_template.json"));
}

// Which of a folder's templates are used, where there are several.
std::string notes_of(const Folder& folder, const ChatTemplate& chat) {
  std::vector<std::string> notes, others;
  if (chat.tool_use)
    notes.emplace_back("conversations with tools take the chat template 'tool_use', others 'default'");
  for (const auto& [name, text] : folder.named())
    if (name != kDefault && name != kToolUse) others.push_back(name);
  if (!others.empty())
    notes.push_back(
        fmt::format("the chat templates [{}] are used only if data.chat_template names them", join(others)));
  std::vector<std::string> replaced;
  if (folder.has_files())
    for (const auto& [name, text] : folder.listed)
      if (const std::string* now = name == kDefault ? &chat.text : find_text(folder.filed, name);
          !now || *now != text)
        replaced.push_back(name);
  if (!replaced.empty())
    notes.push_back(fmt::format(
        "the chat templates [{}] in tokenizer_config.json are replaced by the folder's files with "
        "templates",
        join(replaced)));
  if (!folder.processor.empty() && folder.processor != chat.text)
    notes.emplace_back("the other chat template in chat_template.json is not used");
  return join(notes, "; ");
}

Json variables(const ChatTemplate& chat, const Json& messages, bool add_generation_prompt,
               const Json& extra) {
  if (!messages.is_array()) fail("the messages of a chat must be an array, found {}", messages.kind_name());
  if (!extra.is_object()) fail("the variables of a chat must be an object, found {}", extra.kind_name());
  Json values = chat.special_tokens;
  for (const char* name : {"tools", "documents"}) values.set(name, nullptr);
  set_all(extra.as_object(), values);
  values.set("messages", messages);
  values.set("add_generation_prompt", add_generation_prompt);
  return values;
}

}  // namespace

std::vector<std::string> named_template_files(const std::string& folder) {
  std::vector<std::string> files;
  const std::string path = join_path(folder, kMoreTemplates);
  if (!is_directory(path)) return files;
  for (const std::string& name : list_directory(path))
    if (name.ends_with(kEnding)) files.push_back(join_path(std::string(kMoreTemplates), name));
  return files;
}

std::optional<ChatTemplate> ChatTemplate::load(const std::string& path) {
  const Folder folder(path);
  const auto found = default_of(folder);
  if (!found) return std::nullopt;
  ChatTemplate chat = folder.make(found->first, found->second);
  if (const std::string* text = find_text(folder.named(), kToolUse))
    chat.tool_use.emplace(Template::parse(*text, fmt::format("{}: chat_template tool_use", path)));
  chat.notes = notes_of(folder, chat);
  return chat;
}

ChatTemplate ChatTemplate::choose(const std::string& path, const std::string& file_or_name) {
  const Folder folder(path);
  if (exists(file_or_name) && !is_directory(file_or_name))
    return folder.make(read_file(file_or_name, kLongestText), file_or_name);
  NamedTexts texts = folder.listed;
  NamedTexts files = folder.filed;
  if (exists(folder.own)) files.emplace_back(kDefault, read_file(folder.own, kLongestText));
  for (auto& [name, text] : files) {
    std::erase_if(texts, [&](const auto& entry) { return entry.first == name; });
    texts.emplace_back(name, std::move(text));
  }
  if (const std::string* text = find_text(texts, file_or_name))
    return folder.make(*text, fmt::format("{}: chat_template {}", path, file_or_name));
  std::vector<std::string> names;
  for (const auto& entry : texts) names.push_back(entry.first);
  fail(
      "[data.chat_template] '{}' is not a file, and the model has no chat template of that name; it has [{}]",
      file_or_name, join(names));
}

bool ChatTemplate::mentions(std::string_view name) const {
  return source.mentions(name) || (tool_use && tool_use->mentions(name));
}

const Template& ChatTemplate::template_for(const Json& extra) const {
  const Json* tools = extra.is_object() ? extra.find("tools") : nullptr;
  return tool_use && tools && !tools->is_null() ? *tool_use : source;
}

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& extra) const {
  return template_for(extra).render(variables(*this, messages, add_generation_prompt, extra));
}

Rendered ChatTemplate::render_with_generation(const Json& messages, bool add_generation_prompt,
                                              const Json& extra) const {
  return template_for(extra).render_with_generation(variables(*this, messages, add_generation_prompt, extra));
}

}  // namespace temper::templates
