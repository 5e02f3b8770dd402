#include "recipes/parts/second_model.h"

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

struct ComparedTokens {
  int32_t tokens = 0;      // of the model's tokenizer; 0: the other folder has none to compare
  std::string difference;  // the first one
};

ComparedTokens compare_tokenizers(const std::string& folder, const layers::DecoderConfig& own,
                                  const std::string& other_folder, const layers::DecoderConfig& other) {
  if (!exists(join_path(other_folder, "tokenizer.json"))) return {};
  const auto ours = tokenizers::Tokenizer::load(folder, own.vocab_size),
             theirs = tokenizers::Tokenizer::load(other_folder, other.vocab_size);
  for (int32_t id = 0; id < std::max(ours.vocab_size(), theirs.vocab_size()); ++id) {
    const auto spelled = [id](const tokenizers::Tokenizer& tokenizer) {
      return id < tokenizer.vocab_size() ? tokenizer.token_text(id) : std::string();
    };
    if (spelled(ours) != spelled(theirs))
      return {ours.vocab_size(), fmt::format("token {} is '{}' there and '{}' in the model", id,
                                             spelled(theirs), spelled(ours))};
  }
  return {ours.vocab_size(), ""};
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
  const bool same_size = own.vocab_size == other.vocab_size;
  const auto [tokens, difference] = compare_tokenizers(config.model.path, own, folder, other);
  if (!same_size && (tokens == 0 || !difference.empty()))
    fail("[{}] '{}' has a vocabulary of {} tokens, the model has {}; {} must read the same tokens: {}", key,
         folder, other.vocab_size, own.vocab_size, what, advice);
  if (!same_size)
    fail(
        "[{}] '{}' has a vocab_size of {}, the model {}, though both tokenizers have the same {} tokens: the "
        "rest is padding; resize it with resize_token_embeddings({}) of transformers, and save it",
        key, folder, other.vocab_size, own.vocab_size, tokens, own.vocab_size);
  if (other.max_positions < config.data.max_length)
    fail(
        "[data.max_length] is {}, but max_position_embeddings of {}, '{}', is {}; set data.max_length to {} "
        "or less",
        config.data.max_length, key, folder, other.max_positions, other.max_positions);
  if (!difference.empty())
    fail("[{}] '{}' has another vocabulary: {}; {} must read the same tokens: {}", key, folder, difference,
         what, advice);
}

}  // namespace temper::recipes
