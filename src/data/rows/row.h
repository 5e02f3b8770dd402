#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "data/chat/chat.h"
#include "data/chat/content.h"
#include "data/chat/fields.h"
#include "data/pictures/picture_tokens.h"
#include "tokenizers/tokenizer.h"

namespace temper::data {

using tokenizers::Tokenizer;

enum class LossOn {
  kAllTurns,  // what the assistant wrote, its end-of-turn tokens too; completions; all of a `text`
  kLastTurn,  // of a conversation the last assistant turn only; else the same
  kAll,       // every token
};

// Rows with more than max_length tokens.
enum class Overflow {
  kTruncate,  // keep the beginning
  kSplit,     // cut into examples of max_length, each trained on separately
  kDrop,
  kError
};

// Answers without text, calls and reasoning, of rows that are no preferences.
enum class OnEmptyAnswer {
  kDrop,  // the turn is not trained on; a row without another answer is left out; both are counted
  kLearn
};

// What the rows are for: which formats make sense.
enum class Goal {
  kLanguageModel,  // targets to predict; of a preference, what was chosen if `learn_chosen`
  kPairs,          // preferences: a chosen answer and a rejected one
  kJudgments,      // the same, or a prompt, a completion and a `label`: whether that is good
  kAny,            // whatever a row is
};

struct RowOptions {
  LossOn loss = LossOn::kAllTurns;
  int64_t max_length = 0;  // tokens; 0: no limit
  Overflow overflow = Overflow::kTruncate;
  OnEmptyAnswer on_empty_answer = OnEmptyAnswer::kDrop;
  int64_t vocab_size = 0;         // the model's: ids of rows of tokens are below it; 0: the tokenizer's
  std::optional<int32_t> eos_id;  // ends texts and completions; chat templates write their own
  Json template_extra = Json::Object{};  // further variables of the chat template, for every row
  RowFormat format = RowFormat::kAuto;
  Columns columns = {};
  Labels labels = {};
  Goal goal = Goal::kLanguageModel;
  bool learn_chosen = false;  // a preference is trained on as its chosen answer
  bool drop_answer = false;   // prompt_of leaves out an answer of the assistant that stands at the end
  // Whether the chat template reads a variable or a field of messages; empty: not known. Only for reports.
  std::function<bool(std::string_view name)> template_reads = {};
  bool share_prompts = true;  // chosen and rejected have one prompt, whose tokens are there once
  std::optional<PictureTokens> pictures = {};  // of models that see; without it rows with pictures are errors
};

// An answer that was judged.
struct Answer {
  int64_t length = 0;  // of its own tokens
  bool good = true;    // chosen, or labelled so
};

// Tokens and which of them are targets. Where it has answers, they stand at its end, each of which continues
// what stands before all of them; an answer's own tokens begin with the last of its prompt, as what is
// predicted there is the answer's.
struct Example {
  std::vector<int32_t> ids;
  std::vector<uint8_t> loss_mask;    // 1: the token is a target
  std::vector<Answer> answers = {};  // of Goal::kPairs (chosen, rejected) and Goal::kJudgments

  int64_t bytes_dropped = 0;                 // of its text, as the tokenizer has no token for them
  std::vector<PlacedPicture> pictures = {};  // in the order of their tokens, none of which is a target

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_targets() const;  // without the first token: nothing comes before it to predict it from
};

enum class RowStatus { kKept, kTooLong, kNoTargets, kEmptyAnswer };

// A row as tokens: one example, the texts of a conversation whose turns the template rewrites (chat.h), the
// pieces of a long row (without those that have no target), or, for Goal::kAny, chosen and rejected of a
// preference.
struct EncodedRow {
  RowStatus status = RowStatus::kKept;
  RowFormat format = RowFormat::kText;
  std::vector<Example> examples;
  int64_t full_length = 0;               // tokens before anything was cut off
  int64_t tokens_cut = 0;                // that no example holds
  bool was_too_long = false;             // an example was longer than max_length
  std::vector<std::string> unused = {};  // unused fields (unused_fields.h)
  std::vector<std::string> lost = {};    // what the row says and its text does not (losses.h)
  std::vector<std::string> notes = {};   // what is said of such rows once, and is no loss
  int64_t empty_turns = 0;               // answers that are not trained on because they are empty
  int64_t bytes_dropped = 0;             // of its texts, as the tokenizer has no token for them

  int64_t num_tokens() const;  // of the examples
};

// A row as a question to the model: its last answer taken off.
struct Question {
  std::string text;  // for people: the last message, or the prompt
  std::vector<int32_t> prompt;
  std::string answer;
};

// What a row asks the model to continue.
struct Asked {
  std::vector<int32_t> ids;
  Json messages;  // of a conversation, without the answer; null for other rows
  // What the row says and the prompt does not (losses.h), and what is said of such rows once.
  std::vector<std::string> lost = {}, notes = {};
};

// A conversation that asks for an answer.
struct AskedText {
  std::string text;
  std::vector<std::string> lost = {}, notes = {};
};

class ContentEncoder;
class PictureEncoder;

// Makes examples of rows, whose tokens are those of generation (answer_tokens.h): an answer's first token is
// a target, behind the tokens that prompt_of gives. Texts and prompts get the tokenizer's special tokens
// (usually a begin-of-text token), conversations those that the template writes. Thread-safe when `render`
// and `options.pictures` are. The tokenizer must outlive it.
class RowEncoder {
 public:
  // Without a renderer conversations are errors.
  RowEncoder(const Tokenizer& tokenizer, ChatRenderer render, RowOptions options);

  // Errors name the field, what was found and what was expected; read_row (reader.h) adds file and line.
  // Relative paths of pictures begin in `folder`, the data file's.
  EncodedRow encode(const Json& row, const std::string& folder = "") const;
  RowFormat format_of(const Json& row) const;  // as encode takes the row

  // Unused fields, as encode has them, without making tokens.
  std::vector<std::string> unused_of(const Json& row) const;

  Question question_of(const Json& row) const;
  // A prompt, the text of a row without an answer, or a conversation whose last message is not the
  // assistant's, unless options().drop_answer. A completion that is there is left out.
  Asked asked_of(const Json& row) const;
  std::vector<int32_t> prompt_of(const Json& row) const;  // its tokens alone
  Json messages_of(const Json& row) const;                // its messages alone
  // A conversation's text with which it asks for an answer, as asked_of has it for the row's messages.
  AskedText prompt_text(const Json::Array& messages, const Json& row) const;
  RowEncoder with_goal(Goal goal) const;

  const RowOptions& options() const { return options_; }

 private:
  RowFormat format_of_renamed(const Json& row) const;
  const Json& renamed(const Json& row, Json& storage) const;
  std::vector<Content> contents_of(const Json& renamed_row, RowFormat format) const;
  Json variables_of(const Json& row) const;
  Content prompt_content(const Json& renamed_row) const;
  void encode_contents(EncodedRow& row, const Json& renamed_row, const PictureEncoder* pictures) const;
  void drop_empty_answers(EncodedRow& row, Content& content) const;
  ContentEncoder content_encoder() const;

  const Tokenizer* tokenizer_;
  ChatRenderer render_;
  RowOptions options_;
};

}  // namespace temper::data
