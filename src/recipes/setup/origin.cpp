#include "recipes/setup/origin.h"

#include <algorithm>

#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoints/weights_sample.h"
#include "models/architecture.h"
#include "recipes/keys/recipe.h"
#include "rollout/generation_config.h"
#include "templates/chat.h"

namespace temper::recipes {
namespace {

// The architecture, and the token that ends texts of the data.
Json keys_of_model(const RunSetup& setup, const std::string& file) {
  Json keys = models::architecture_json(setup.model_config.at("model_type").as_string(), setup.architecture);
  Json::Array ends;
  for (const int32_t id : rollout::end_tokens(setup.model_config, file, setup.architecture.vocab_size))
    ends.emplace_back(int64_t{id});
  keys.set("eos_token_id", std::move(ends));
  return keys;
}

}  // namespace

Json origin_of(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  const std::string model = join_path(config.model.path, "config.json");
  Json::Object origin{{model, keys_of_model(setup, model)}};
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "chat_template.jinja"}) {
    const std::string path = join_path(config.model.path, file);
    origin.emplace_back(path, exists(path) ? Json(hash_file(path)) : Json());
  }
  for (const std::string& file : templates::named_template_files(config.model.path)) {
    const std::string path = join_path(config.model.path, file);
    origin.emplace_back(path, hash_file(path));
  }
  const std::string& chosen = config.data.chat_template;
  const auto is_chosen = [&](const auto& file) { return file.first == chosen; };  // one of the model's own
  if (exists(chosen) && std::none_of(origin.begin(), origin.end(), is_chosen))
    origin.emplace_back(chosen, hash_file(chosen));
  if (const std::string other = recipe_of(config).other_model(config); !other.empty())
    origin.emplace_back(other, checkpoints::sample_of_weights(other));
  return origin;
}

std::string difference_of_origin(const std::string& file, const Json& was, const Json& is) {
  if (was == is) return "";
  if (!is.is_object()) return file;
  if (!was.is_object()) return was.is_string() && was.as_string() == hash_file(file) ? "" : file;
  std::vector<std::string> keys;
  for (const auto& [key, value] : is.as_object())
    if (const Json* before = was.find(key); before != nullptr && *before != value)
      keys.push_back(fmt::format("{}: {}, now {}", key, before->dump(), value.dump()));
  return keys.empty() ? "" : fmt::format("{} ({})", file, join(keys));
}

}  // namespace temper::recipes
