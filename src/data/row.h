#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/chat.h"
#include "data/fields.h"
#include "tokenizers/tokenizer.h"

namespace temper::data {

using tokenizers::Tokenizer;

enum class LossOn {
  kAssistant,  // what the assistant wrote, its end-of-turn token too; completions; all of a `text`
  kAll,        // every token
};

enum class Overflow { kTruncate, kDrop, kError };  // rows with more than max_length tokens

struct RowOptions {
  LossOn loss = LossOn::kAssistant;
  int64_t max_length = 0;  // tokens; 0: no limit
  Overflow overflow = Overflow::kTruncate;
  std::optional<int32_t> eos_id;         // ends texts and completions; chat templates write their own
  Json template_extra = Json::Object{};  // further variables of the chat template, for every row
};

// A row as tokens.
struct Example {
  std::vector<int32_t> ids;
  std::vector<uint8_t> loss_mask;  // 1: the token is a target
  RowFormat format = RowFormat::kText;
  int64_t full_length = 0;  // tokens before truncation

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_targets() const;  // without the first token: nothing comes before it to predict it from
  bool truncated() const { return full_length > size(); }
};

enum class RowStatus { kKept, kTooLong, kNoTargets };

struct EncodedRow {
  RowStatus status = RowStatus::kKept;
  Example example;
};

// Makes examples of rows. A text is tokenized at once, never in pieces, and a token is a target when it
// begins inside a target span: one that straddles the span's start is not, one that straddles its end is.
// White space behind an end-of-turn token that is special is not a target, though the span holds it. Texts
// and prompts get the tokenizer's special tokens (usually a begin-of-text token), conversations those that
// the template writes. Thread-safe when `render` is. The tokenizer must outlive it.
class RowEncoder {
 public:
  // Without a renderer conversations are errors.
  RowEncoder(const Tokenizer& tokenizer, ChatRenderer render, RowOptions options);

  // Errors name the field, what was found and what was expected; read_row (reader.h) adds file and line.
  EncodedRow encode(const Json& row) const;

  const RowOptions& options() const { return options_; }

 private:
  Example example_of(const Json& row) const;
  Example encode_messages(const Json& row) const;
  Example encode_prompt(const Json& row) const;
  Example encode_chat(const Json::Array& messages, size_t first_turn, const Json& row) const;
  Example encode_text(std::string_view text, size_t target_begin) const;

  const Tokenizer* tokenizer_;
  ChatRenderer render_;
  RowOptions options_;
};

}  // namespace temper::data
