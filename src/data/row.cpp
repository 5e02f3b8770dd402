#include "data/row.h"

#include <algorithm>

#include "base/error.h"

namespace temper::data {
namespace {

void check_roles(const Json::Array& messages, std::string_view text) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].at("role").as_string();
    const Json* content = field_of(messages[i], "content");
    if (is_known_role(role) || !content) continue;
    if (text.find(trim(content->as_string())) == std::string_view::npos)
      fail("messages[{}].role is '{}', which the chat template does not write", i, role);
  }
}

// Marks the tokens that begin inside the span, but for white space behind a special token at its end.
void mask_span(const tokenizers::Encoding& tokens, ByteSpan span, const Tokenizer& tokenizer,
               std::vector<uint8_t>& mask) {
  size_t begin = 0, end = tokens.ids.size();
  while (begin < end && tokens.spans[begin].begin < span.begin) ++begin;
  while (end > begin && tokens.spans[end - 1].begin >= span.end) --end;
  size_t last = end;
  while (last > begin && trim(tokenizer.token_bytes(tokens.ids[last - 1])).empty()) --last;
  if (last > begin && tokenizer.is_special(tokens.ids[last - 1])) end = last;
  for (size_t i = begin; i < end; ++i) mask[i] = 1;
}

}  // namespace

int64_t Example::num_targets() const {
  return loss_mask.empty() ? 0 : std::count(loss_mask.begin() + 1, loss_mask.end(), 1);
}

RowEncoder::RowEncoder(const Tokenizer& tokenizer, ChatRenderer render, RowOptions options)
    : tokenizer_(&tokenizer), render_(std::move(render)), options_(std::move(options)) {
  if (options_.max_length < 0) fail("[data] max_length is {}, expected at least 0", options_.max_length);
}

EncodedRow RowEncoder::encode(const Json& row) const {
  EncodedRow out{RowStatus::kKept, example_of(row)};
  Example& example = out.example;
  example.full_length = example.size();
  if (const int64_t limit = options_.max_length; limit > 0 && example.size() > limit) {
    if (options_.overflow == Overflow::kError)
      fail("the row has {} tokens, max_length is {}; raise it, or set overflow to truncate or drop",
           example.size(), limit);
    if (options_.overflow == Overflow::kDrop) {
      out.status = RowStatus::kTooLong;
      return out;
    }
    example.ids.resize(static_cast<size_t>(limit));
    example.loss_mask.resize(static_cast<size_t>(limit));
  }
  if (example.num_targets() == 0) out.status = RowStatus::kNoTargets;
  return out;
}

Example RowEncoder::example_of(const Json& row) const {
  const RowFormat format = format_of(row);
  Example example;
  switch (format) {
    case RowFormat::kMessages:
      example = encode_messages(row);
      break;
    case RowFormat::kPromptCompletion:
      example = encode_prompt(row);
      break;
    case RowFormat::kText:
      example = encode_text(check_string(row.at("text"), "text"), 0);
      break;
  }
  example.format = format;
  return example;
}

Example RowEncoder::encode_messages(const Json& row) const {
  return encode_chat(check_messages(row.at("messages"), "messages"), 0, row);
}

Example RowEncoder::encode_prompt(const Json& row) const {
  const Json& prompt = row.at("prompt");
  const Json& completion = row.at("completion");
  if (prompt.is_string()) {
    const std::string& text = prompt.as_string();
    return encode_text(text + check_string(completion, "completion"), text.size());
  }
  if (!prompt.is_array()) fail("prompt must be a string or a list of messages, found {}", prompt.kind_name());
  Json::Array messages = check_messages(prompt, "prompt");
  const size_t first_turn = messages.size();
  for (const Json& message : check_messages(completion, "completion")) messages.push_back(message);
  return encode_chat(messages, first_turn, row);
}

Example RowEncoder::encode_chat(const Json::Array& messages, size_t first_turn, const Json& row) const {
  if (!render_) fail("the row is a conversation, but the model has no chat template");
  Json extra = options_.template_extra;
  if (const Json* tools = field_of(row, "tools")) {
    if (!tools->is_array()) fail("tools must be an array, found {}", tools->kind_name());
    extra.set("tools", *tools);
  }
  const bool all = options_.loss == LossOn::kAll;
  const ChatText chat = all ? ChatText{render_(messages, false, extra).text, {}}
                            : render_chat(messages, first_turn, extra, render_);
  check_roles(messages, chat.text);
  tokenizers::Encoding encoding = tokenizer_->encode_with_offsets(chat.text);
  Example example;
  example.loss_mask.assign(encoding.ids.size(), all);
  for (const ByteSpan span : chat.assistant) mask_span(encoding, span, *tokenizer_, example.loss_mask);
  example.ids = std::move(encoding.ids);
  return example;
}

// Targets are the text from `target_begin` on and the end-of-text token.
Example RowEncoder::encode_text(std::string_view text, size_t target_begin) const {
  tokenizers::Encoding encoding = tokenizer_->encode_with_offsets(text, true);
  Example example;
  const bool all = options_.loss == LossOn::kAll || target_begin == 0;
  example.loss_mask.assign(encoding.ids.size(), all);
  if (!all) mask_span(encoding, {target_begin, text.size()}, *tokenizer_, example.loss_mask);
  example.ids = std::move(encoding.ids);
  if (!options_.eos_id) return example;
  if (example.ids.empty() || example.ids.back() != *options_.eos_id) {
    example.ids.push_back(*options_.eos_id);
    example.loss_mask.push_back(1);
  }
  example.loss_mask.back() = 1;
  return example;
}

}  // namespace temper::data
