#include "recipes/second_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/model.h"
#include "tokenizers/tokenizer.h"

namespace temper::recipes {
namespace {

layers::DecoderConfig architecture_of(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  return models::configure(Json::parse_file(file), file);
}

}  // namespace

void check_second_model(const RunConfig& config, std::string_view key, const std::string& folder,
                        std::string_view what, std::string_view advice) {
  if (folder.empty()) return;
  if (!is_directory(folder)) fail("[{}] '{}' {}", key, folder, checkpoints::no_model_folder(folder));
  if (!exists(join_path(folder, "config.json")))
    fail(
        "[{}] '{}' has no config.json; expected a model in Hugging Face format (merge an adapter into its "
        "base first)",
        key, folder);
  const layers::DecoderConfig own = architecture_of(config.model.path), other = architecture_of(folder);
  if (own.vocab_size != other.vocab_size)
    fail("[{}] '{}' has a vocabulary of {} tokens, the model has {}; {} must read the same tokens: {}", key,
         folder, other.vocab_size, own.vocab_size, what, advice);
  if (other.max_positions < config.data.max_length)
    fail("[data.max_length] is {}, but max_position_embeddings of {}, '{}', is {}", config.data.max_length,
         key, folder, other.max_positions);
  if (!exists(join_path(folder, "tokenizer.json"))) return;
  const auto tokens = tokenizers::Tokenizer::load(config.model.path),
             theirs = tokenizers::Tokenizer::load(folder);
  for (int32_t id = 0; id < std::max(tokens.vocab_size(), theirs.vocab_size()); ++id) {
    const auto spelled = [id](const tokenizers::Tokenizer& tokenizer) {
      return id < tokenizer.vocab_size() ? tokenizer.token_text(id) : std::string();
    };
    if (spelled(tokens) != spelled(theirs))
      fail(
          "[{}] '{}' has another vocabulary: token {} is '{}' there and '{}' in the model; {} must read the "
          "same tokens: {}",
          key, folder, id, spelled(theirs), spelled(tokens), what, advice);
  }
}

}  // namespace temper::recipes
