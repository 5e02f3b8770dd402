#include "rollout/text_model.h"

#include <algorithm>

#include "base/error.h"
#include "rollout/generation_config.h"

namespace temper::rollout {

TextFiles TextFiles::load(const std::string& folder, int64_t vocab_size) {
  auto chat = templates::ChatTemplate::load(folder);
  TextFiles files{tokenizers::Tokenizer::load(folder),
                  chat ? std::make_shared<const templates::ChatTemplate>(std::move(*chat)) : nullptr,
                  read_generation_config(folder)};
  if (files.tokenizer.vocab_size() > vocab_size)
    fail("[{}] the tokenizer has {} tokens, the model's vocab_size is {}; are both of the same model?",
         folder, files.tokenizer.vocab_size(), vocab_size);
  return files;
}

std::string TextFiles::chat_prompt(const Json::Array& messages, const Json& extra) const {
  if (!chat)
    fail(
        "the model folder has no chat template (chat_template.jinja or tokenizer_config.json); use plain "
        "prompts");
  return chat->render(Json(messages), true, extra);
}

}  // namespace temper::rollout
