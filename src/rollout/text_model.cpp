#include "rollout/text_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/chat/chat_template.h"
#include "data/chat/losses.h"
#include "rollout/generation_config.h"

namespace temper::rollout {

TextFiles TextFiles::load(const std::string& folder, int64_t vocab_size, const std::string& chat_template) {
  auto chat = chat_template.empty() ? templates::ChatTemplate::load(folder)
                                    : templates::ChatTemplate::choose(folder, chat_template);
  TextFiles files{tokenizers::Tokenizer::load(folder, vocab_size),
                  chat ? std::make_shared<const templates::ChatTemplate>(std::move(*chat)) : nullptr,
                  read_generation_config(folder, vocab_size), vocab_size};
  if (files.tokenizer.vocab_size() > vocab_size)
    fail("[{}] the tokenizer has {} tokens, the model's vocab_size is {}; are both of the same model?",
         folder, files.tokenizer.vocab_size(), vocab_size);
  if (files.chat && !files.chat->notes.empty()) log_info(files.chat->notes);
  return files;
}

std::string TextFiles::chat_prompt(const Json::Array& messages, const Json& extra) const {
  if (!chat)
    fail(
        "the model folder has no chat template (chat_template.jinja or tokenizer_config.json); use plain "
        "prompts");
  const data::ChatRenderer render = data::renderer_of(chat);
  data::RenderedChat whole = render(messages, true, extra);
  data::warn_of_losses([] { return "chat"; },
                       data::losses_of(messages, data::Rendering::kPrompt, extra, render, whole).lost);
  return std::move(whole.text);
}

std::vector<int32_t> TextFiles::encode_prompt(std::string_view prompt, bool add_special_tokens) const {
  tokenizers::Encoding encoding =
      add_special_tokens ? tokenizer.encode_prompt(prompt) : tokenizer.encode_with_offsets(prompt);
  if (encoding.num_dropped > 0)
    log_warning(fmt::format("{} of the prompt's {} bytes are left out: the tokenizer has no token for them",
                            encoding.num_dropped, prompt.size()));
  return std::move(encoding.ids);
}

}  // namespace temper::rollout
