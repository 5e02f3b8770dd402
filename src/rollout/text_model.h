#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "rollout/requests/request.h"
#include "templates/chat.h"
#include "tokenizers/tokenizer.h"

namespace temper::rollout {

// A model folder's text side: tokenizer, chat template and generation settings.
struct TextFiles {
  tokenizers::Tokenizer tokenizer;
  std::shared_ptr<const templates::ChatTemplate> chat;  // null: the folder has none
  Request generation;                                   // what requests begin with
  int64_t vocab_size = 0;  // the model's, which may be larger than the tokenizer's (padding)

  // Checks that the tokenizer's ids fit the vocabulary. `chat_template` is a file or the name of one of the
  // folder's templates; empty: the folder's own. Which templates are used is logged where there are several.
  static TextFiles load(const std::string& folder, int64_t vocab_size, const std::string& chat_template = "");
  // The prompt that makes the model answer these messages; an error when the folder has no chat template.
  // What of them the template leaves out is a warning.
  std::string chat_prompt(const Json::Array& messages, const Json& extra = Json::Object{}) const;
  // A prompt's tokens; a warning says how many of its bytes the tokenizer has no token for and leaves out.
  std::vector<int32_t> encode_prompt(std::string_view prompt, bool add_special_tokens) const;
};

}  // namespace temper::rollout
