#include "tokenizers/tokens/declared_tokens.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

constexpr std::string_view kOwnFile = "tokenizer.json", kSettings = "tokenizer_config.json",
                           kNames = "special_tokens_map.json", kAdded = "added_tokens.json",
                           kDecoder = "added_tokens_decoder";

const Json* value_of(const Json& object, std::string_view key) {
  const Json* value = object.is_object() ? object.find(key) : nullptr;
  return value && !value->is_null() ? value : nullptr;
}

// A token under a name: "<s>" or {"content": "<s>", …}; nothing for other values.
std::optional<AddedToken> named_token(const Json& value, const std::string& place) {
  AddedToken token;
  const Json* content = value_of(value, "content");
  if (value.is_string())
    token.content = value.as_string();
  else if (content && content->is_string() && !content->as_string().empty())
    token = AddedTokens::read(value, place);
  token.special = true;
  if (token.content.empty()) return std::nullopt;
  return token;
}

using Named = std::vector<std::pair<std::string, AddedToken>>;  // tokens with the key that names them

// In the order in which transformers gives ids to tokens that have none.
Named named_tokens(const Json& file, const std::string& place) {
  Named named;
  const auto add = [&](const std::string& key, const Json& value) {
    if (auto token = named_token(value, place + "." + key)) named.emplace_back(key, std::move(*token));
  };
  constexpr std::array<std::string_view, 7> kFirst = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                      "pad_token", "cls_token", "mask_token"};
  for (const std::string_view key : kFirst)
    if (const Json* value = value_of(file, key)) add(std::string(key), *value);
  for (const auto& [key, value] : file.as_object())
    if (key.ends_with("_token") && std::find(kFirst.begin(), kFirst.end(), key) == kFirst.end())
      add(key, value);
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* value = value_of(file, key);
    if (value && value->is_array())
      for (const Json& token : value->as_array()) add(key, token);
    if (value && value->is_object())
      for (const auto& [name, token] : value->as_object()) add(key, token);
  }
  return named;
}

std::set<std::string_view> contents_of(const Named& named) {
  std::set<std::string_view> contents;
  for (const auto& [key, token] : named) contents.insert(token.content);
  return contents;
}

// The tokens of a model by their spellings and ids: a search through all of them for each of a hundred
// thousand declared ones would take minutes.
class ModelTokens {
 public:
  explicit ModelTokens(const Vocabulary::Entries& model) {
    for (const auto& [spelling, id] : model) {
      ids_.emplace(spelling, id);
      spellings_.emplace(id, spelling);
      next_id_ = std::max(next_id_, id + 1);
    }
  }
  std::optional<int32_t> id_of(std::string_view spelling) const {
    const auto found = ids_.find(spelling);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<std::string_view> spelling_of(int32_t id) const {
    const auto found = spellings_.find(id);
    return found == spellings_.end() ? std::nullopt : std::optional(found->second);
  }
  int32_t next_id() const { return next_id_; }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
  std::unordered_map<int32_t, std::string_view> spellings_;
  int32_t next_id_ = 0;
};

// Whether what contradicts other files is refused, or left out with a warning.
enum class Rank { kDecides, kGivesWay };

class Declarations {
 public:
  Declarations(std::string folder, std::vector<AddedToken> own, const Vocabulary::Entries& model,
               int64_t vocab_size)
      : folder_(std::move(folder)), model_(model), vocab_size_(vocab_size), next_id_(model_.next_id()) {
    for (AddedToken& token : own) add(std::move(token), kOwnFile);
  }

  void state(AddedToken token, std::string_view file, bool says_how, Rank rank = Rank::kDecides) {
    if (const std::string other = contradiction_of(token, file); !other.empty()) {
      if (rank == Rank::kDecides) fail("[{}] {}; take both files from the same model", folder_, other);
      contradictions_.push_back(other);
      return;
    }
    if (const auto known = by_content_.find(token.content); known != by_content_.end()) {
      if (says_how) tokens_[known->second] = std::move(token);
      return;
    }
    if (vocab_size_ > 0 && token.id >= vocab_size_) {
      beyond_[file].push_back(fmt::format("'{}' ({})", token.content, token.id));
      without_room_.insert(std::move(token.content));
      return;
    }
    add(std::move(token), file);
  }

  // `room`: a new token may get an id below it.
  void name(AddedToken token, std::string_view file, std::string_view key, int64_t room) {
    if (const auto known = by_content_.find(token.content); known != by_content_.end()) {
      tokens_[known->second].special = true;
      return;
    }
    if (without_room_.contains(token.content)) return;
    const std::optional<int32_t> in_model = model_.id_of(token.content);
    token.id = in_model.value_or(next_id_);
    if (in_model || token.id < room) return add(std::move(token), file);
    if (room > 0 && ++without_id_ <= kMostReported)
      log_warning(
          fmt::format("[{}] {} is '{}', to which no file gives an id, and the model's vocab_size, {}, has no "
                      "room for it: "
                      "texts with it are tokenized like others",
                      join_path(folder_, file), key, token.content, room));
  }

  std::vector<AddedToken> finish() {
    if (without_id_ > kMostReported)
      log_warning(fmt::format("[{}] for {} more tokens without an id there is no room, either", folder_,
                              without_id_ - kMostReported));
    for (const auto& [file, tokens] : beyond_)
      log_warning(
          fmt::format("[{}] the model's vocab_size, {}, has no room for the ids of tokens: {}; texts with "
                      "them are tokenized like others",
                      join_path(folder_, file), vocab_size_, first_of(tokens)));
    if (!contradictions_.empty())
      log_warning(fmt::format("[{}] is left out where {} of {} says otherwise: {}",
                              join_path(folder_, kAdded), kDecoder, kSettings, first_of(contradictions_)));
    return std::move(tokens_);
  }

 private:
  void add(AddedToken token, std::string_view file) {
    by_content_.emplace(token.content, tokens_.size());
    by_id_.emplace(token.id, tokens_.size());
    next_id_ = std::max(next_id_, token.id + 1);
    files_.push_back(file);
    tokens_.push_back(std::move(token));
  }

  // What other files say of the token or of its id; "": nothing else.
  std::string contradiction_of(const AddedToken& token, std::string_view file) const {
    const auto ids = [&](int32_t other, std::string_view other_file) {
      return fmt::format("token '{}' has id {} in {} and {} in {}", token.content, other, other_file,
                         token.id, file);
    };
    const auto tokens = [&](std::string_view other, std::string_view other_file) {
      return fmt::format("id {} is token '{}' in {} and '{}' in {}", token.id, other, other_file,
                         token.content, file);
    };
    if (const auto known = by_content_.find(token.content); known != by_content_.end()) {
      const int32_t id = tokens_[known->second].id;
      return id == token.id ? "" : ids(id, files_[known->second]);
    }
    if (const auto known = by_id_.find(token.id); known != by_id_.end())
      return tokens(tokens_[known->second].content, files_[known->second]);
    if (const auto id = model_.id_of(token.content); id && *id != token.id) return ids(*id, kOwnFile);
    if (const auto spelling = model_.spelling_of(token.id); spelling && *spelling != token.content)
      return tokens(*spelling, kOwnFile);
    return "";
  }

  static std::string first_of(const std::vector<std::string>& all) {
    return all.front() + (all.size() > 1 ? fmt::format(" (and {} more)", all.size() - 1) : "");
  }

  std::string folder_;
  static constexpr size_t kMostReported = 10;

  ModelTokens model_;
  int64_t vocab_size_;  // 0: not known
  int32_t next_id_;     // the first that no token has
  size_t without_id_ = 0;
  std::vector<AddedToken> tokens_;
  std::vector<std::string_view> files_;  // that declare them
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::map<std::string_view, std::vector<std::string>> beyond_;  // by file
  std::set<std::string> without_room_;                           // the tokens of beyond_
  std::vector<std::string> contradictions_;
};

Json read_object(const std::string& folder, std::string_view name) {
  const std::string path = join_path(folder, name);
  if (!exists(path)) return {};
  Json file = Json::parse_file(path);
  if (!file.is_object()) fail("[{}] must be an object, found {}", path, file.kind_name());
  return file;
}

int32_t id_of(const std::string& key, const std::string& place) {
  const auto id = parse_integer_of<int32_t>(key);
  if (id.value_or(-1) < 0) fail("{} has the key '{}', expected token ids", place, key);
  return *id;
}

}  // namespace

TokenFiles TokenFiles::read(const std::string& folder) {
  return {folder, read_object(folder, kSettings), read_object(folder, kNames), read_object(folder, kAdded)};
}

std::vector<AddedToken> declared_tokens(const TokenFiles& files, std::vector<AddedToken> own,
                                        const Vocabulary::Entries& model, int64_t vocab_size) {
  Declarations all(files.folder, std::move(own), model, vocab_size);
  const auto place = [&](std::string_view file) {
    return fmt::format("[{}]", join_path(files.folder, file));
  };
  Named of_settings, of_names;
  if (files.settings.is_object()) of_settings = named_tokens(files.settings, place(kSettings));
  if (files.special_names.is_object()) of_names = named_tokens(files.special_names, place(kNames));
  const Json* decoder = value_of(files.settings, kDecoder);
  if (decoder) {
    const std::string where = fmt::format("{}.{}", place(kSettings), kDecoder);
    if (!decoder->is_object()) fail("{} must be an object, found {}", where, decoder->kind_name());
    for (const auto& [key, entry] : decoder->as_object()) {
      AddedToken token = AddedTokens::read(entry, fmt::format("{}.{}", where, key));
      token.id = id_of(key, where);
      all.state(std::move(token), kSettings, true);
    }
  }
  const std::set<std::string_view> in_settings = contents_of(of_settings), in_names = contents_of(of_names);
  if (files.added.is_object())
    for (const auto& [content, id] : files.added.as_object()) {
      const bool special = in_settings.contains(content) || in_names.contains(content);
      all.state({content, as_token_id(id, fmt::format("{} '{}'", place(kAdded), content)), special, !special},
                kAdded, false, decoder ? Rank::kGivesWay : Rank::kDecides);
    }
  for (auto& [key, token] : of_settings) all.name(std::move(token), kSettings, key, vocab_size);
  // Where the settings state tokens, transformers does not read this file.
  for (auto& [key, token] : of_names) all.name(std::move(token), kNames, key, decoder ? 0 : vocab_size);
  return all.finish();
}

}  // namespace temper::tokenizers
