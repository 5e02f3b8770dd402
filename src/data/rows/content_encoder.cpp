#include "data/rows/content_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat/losses.h"
#include "data/chat/messages.h"
#include "data/chat/picture_parts.h"
#include "data/rows/answer_tokens.h"
#include "data/rows/answers.h"

namespace temper::data {
namespace {

void check_roles(const Json::Array& messages, std::string_view text) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].at("role").as_string();
    const Json* content = field_of(messages[i], "content");
    if (is_known_role(role) || !content) continue;
    for (const std::string_view said : texts_between_marks(content->as_string()))
      if (text.find(trim(said)) == std::string_view::npos)
        fail("messages[{}].role is '{}', which the chat template does not write", i, role);
  }
}

// The last of the assistant's messages that may be trained on.
size_t last_turn(const Content& content) {
  for (size_t i = content.messages.size(); i > content.first_turn; --i)
    if (is_assistant(content.messages[i - 1]) && is_trained(content.messages[i - 1], i - 1)) return i - 1;
  return content.first_turn;
}

}  // namespace

std::vector<Example> ContentEncoder::examples_of(const Content& content, const Json& variables,
                                                 std::optional<RenderedChat> whole, bool prompt_only) const {
  if (prompt_only) return {encode_prompt(whole ? whole->text : content.text, !whole)};
  if (whole) return encode_chat(content, variables, std::move(*whole));
  return {encode_text(content.text, content.target_begin)};
}

void ContentEncoder::check_renderer() const {
  if (!render_) fail("the row is a conversation, but the model has no chat template");
}

std::optional<RenderedChat> ContentEncoder::text_of(const Content& content, const Json& extra,
                                                    bool as_prompt) const {
  if (!content.chat) return std::nullopt;
  check_renderer();
  RenderedChat whole = as_prompt || options_.loss == LossOn::kAll
                           ? render_whole(content.messages, as_prompt, extra, render_)
                           : render_(content.messages, false, extra);
  check_roles(content.messages, whole.text);
  return whole;
}

std::vector<Example> ContentEncoder::encode_chat(const Content& content, const Json& extra,
                                                 RenderedChat whole) const {
  if (options_.loss == LossOn::kAll) {
    const std::vector<size_t> answers = answers_in(whole.text, content.messages, extra, render_);
    return {tokenize_all(whole.text, answers, tokenizer_)};
  }
  const size_t first = options_.loss == LossOn::kLastTurn ? last_turn(content) : content.first_turn;
  const EndCheck has_end = [this](std::string_view text) {
    const std::vector<int32_t> ids = tokenizer_.encode(text);
    return std::any_of(ids.begin(), ids.end(), [this](int32_t id) { return tokenizer_.is_special(id); });
  };
  const std::vector<ChatText> texts =
      render_chat(content.messages, first, extra, render_, has_end, std::move(whole));
  if (texts.size() > 1)
    check_single("the template writes earlier turns of the answer otherwise once later ones follow");
  std::vector<Example> examples;
  for (const ChatText& text : texts)
    for (Example& example : tokenize_turns(text, tokenizer_)) examples.push_back(std::move(example));
  if (examples.size() > texts.size())
    check_single(
        "an earlier turn of the answer begins or ends in the middle of a token, which is cut only while the "
        "turn is written");
  return examples;
}

// An answer that is compared is one text.
void ContentEncoder::check_single(std::string_view why) const {
  if (compares(options_.goal))
    fail(
        "{}, so that it is no single answer; set loss: last_turn, or give the earlier turns as part of the "
        "prompt",
        why);
}

Example ContentEncoder::encode_prompt(std::string_view text, bool add_special_tokens) const {
  tokenizers::Encoding tokens =
      add_special_tokens ? tokenizer_.encode_prompt(text) : tokenizer_.encode_with_offsets(text);
  std::vector<uint8_t> mask(tokens.ids.size(), 0);
  return {std::move(tokens.ids), std::move(mask), {}, static_cast<int64_t>(tokens.num_dropped)};
}

// Targets are the text from `target_begin` on and the end-of-text token.
Example ContentEncoder::encode_text(std::string_view text, size_t target_begin) const {
  Example example = tokenize_answer(text, target_begin, options_.loss == LossOn::kAll, tokenizer_);
  if (!options_.eos_id) return example;
  if (example.ids.empty() || example.ids.back() != *options_.eos_id) {
    example.ids.push_back(*options_.eos_id);
    example.loss_mask.push_back(1);
  }
  example.loss_mask.back() = 1;
  return example;
}

}  // namespace temper::data
