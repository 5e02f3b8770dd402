#include "data/rows/row.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/chat/empty_answers.h"
#include "data/chat/messages.h"
#include "data/chat/spellings.h"
#include "data/rows/answer_tokens.h"
#include "data/rows/answered_rows.h"
#include "data/rows/answers.h"
#include "data/rows/token_rows.h"
#include "data/rows/unused_fields.h"

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

// The last of the assistant's messages that may be learnt.
size_t last_turn(const Content& content) {
  for (size_t i = content.messages.size(); i > content.first_turn; --i)
    if (is_assistant(content.messages[i - 1]) && is_learnt(content.messages[i - 1], i - 1)) return i - 1;
  return content.first_turn;
}

// The tokens from `begin` on, at most `size`.
Example part_of(const Example& whole, int64_t begin, int64_t size) {
  const auto first = static_cast<std::ptrdiff_t>(begin),
             last = static_cast<std::ptrdiff_t>(std::min(begin + size, whole.size()));
  return {{whole.ids.begin() + first, whole.ids.begin() + last},
          {whole.loss_mask.begin() + first, whole.loss_mask.begin() + last}};
}

// Beside text alone a picture is metadata; conversations and prompts speak of it.
bool is_text_alone(RowFormat format) {
  return format == RowFormat::kText || format == RowFormat::kTokens || format == RowFormat::kClassification;
}

// A row that says nothing about what to predict.
void check_goal(RowFormat format, const RowOptions& options) {
  if (options.goal == Goal::kAny) return;
  if (options.goal != Goal::kLanguageModel) return check_judged(format, options.goal);
  if (format == RowFormat::kPreference && !options.learn_chosen)
    fail(
        "the row is a preference (chosen, rejected), of which recipe sft can learn the chosen answer only; "
        "set data.train[].learn_chosen: true for that, or recipe: preference");
  if (format == RowFormat::kPromptOnly)
    fail("the row has a prompt and no answer to learn; expected the field completion");
}

}  // namespace

int64_t Example::num_targets() const {
  return loss_mask.empty() ? 0 : std::count(loss_mask.begin() + 1, loss_mask.end(), 1);
}

int64_t EncodedRow::num_tokens() const {
  return std::accumulate(examples.begin(), examples.end(), int64_t{0},
                         [](int64_t sum, const Example& example) { return sum + example.size(); });
}

RowEncoder::RowEncoder(const Tokenizer& tokenizer, ChatRenderer render, RowOptions options)
    : tokenizer_(&tokenizer), render_(std::move(render)), options_(std::move(options)) {
  if (options_.max_length < 0) fail("[data] max_length is {}, expected at least 0", options_.max_length);
}

// The row with our names of its columns; `storage` holds it where it had others.
const Json& RowEncoder::renamed(const Json& row, Json& storage) const {
  if (!row.is_object()) fail("a row must be an object, found {}", row.kind_name());
  const bool columns = !options_.columns.empty();
  const bool as_found = !columns && options_.format == RowFormat::kAuto;
  if (as_found) refuse_rollout(row);
  if (as_found && is_answered(row)) {
    if (!options_.drop_answer) return storage = answered_row(row);
    storage = row.at("input");
    respell(storage);
    return storage;
  }
  if (columns) storage = rename_columns(row, options_.columns);
  if (!needs_respelling(columns ? storage : row)) return columns ? storage : row;
  if (!columns) storage = row;
  respell(storage);
  return storage;
}

RowEncoder RowEncoder::with_goal(Goal goal) const {
  RowEncoder other = *this;
  other.options_.goal = goal;
  return other;
}

RowFormat RowEncoder::format_of(const Json& given) const {
  Json storage;
  return format_of_renamed(renamed(given, storage));
}

RowFormat RowEncoder::format_of_renamed(const Json& row) const {
  return options_.format != RowFormat::kAuto ? options_.format : data::format_of(row);
}

std::vector<Content> RowEncoder::contents_of(const Json& row, RowFormat format) const {
  std::vector<Content> contents = read_content(row, format, render_ != nullptr, options_.labels);
  if (options_.goal == Goal::kLanguageModel) contents.resize(1);  // of a preference what was chosen
  return contents;
}

EncodedRow RowEncoder::encode(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  check_characters(row, "");
  check_size(row);
  EncodedRow out;
  out.format = format_of_renamed(row);
  if (!is_text_alone(out.format)) refuse_media(row);
  check_goal(out.format, options_);
  out.unused = unused_fields(row, out.format, options_);
  if (out.format == RowFormat::kTokens)
    out.examples.push_back(read_tokens(
        row, options_.vocab_size > 0 ? options_.vocab_size : tokenizer_->vocab_size(), options_.loss));
  else
    encode_contents(out, row);
  if (out.status == RowStatus::kEmptyAnswer) return out;
  out.full_length = out.num_tokens();
  for (const Example& example : out.examples) out.bytes_dropped += example.bytes_dropped;
  if (compares(options_.goal)) check_answers(out);
  fit(out);
  if (compares(options_.goal)) judge(out, row);
  return out;
}

void RowEncoder::drop_empty_answers(EncodedRow& out, Content& content) const {
  if (options_.on_empty_answer == OnEmptyAnswer::kLearn || out.format == RowFormat::kPromptOnly) return;
  const EmptyAnswers empty = find_empty_answers(content);
  if (empty.nothing) out.status = RowStatus::kEmptyAnswer;
  if (options_.loss == LossOn::kAll) return;  // all other turns are learnt as well
  out.empty_turns = empty.turns;
  if (empty.turns > 0) leave_out_empty_answers(content);
}

void RowEncoder::encode_contents(EncodedRow& out, const Json& row) const {
  std::vector<Content> contents = contents_of(row, out.format);
  if (compares(options_.goal)) check_said(contents);
  if (contents.size() == 1 && !compares(options_.goal)) drop_empty_answers(out, contents[0]);
  if (out.status == RowStatus::kEmptyAnswer) return;
  const Json variables = variables_of(row);
  const bool asks = out.format == RowFormat::kPromptOnly;
  for (const Content& content : contents) {
    std::optional<RenderedChat> whole = whole_of(content, variables, asks);
    add_losses(out, content, row, variables, whole, asks);
    for (Example& example : examples_of(content, variables, std::move(whole), asks))
      out.examples.push_back(std::move(example));
  }
}

std::vector<std::string> RowEncoder::unused_of(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  EncodedRow out;
  out.format = format_of_renamed(row);
  out.unused = unused_fields(row, out.format, options_);
  if (out.format == RowFormat::kTokens) return std::move(out.unused);
  const Json variables = variables_of(row);
  const bool asks = out.format == RowFormat::kPromptOnly;
  for (const Content& content : contents_of(row, out.format))
    add_losses(out, content, row, variables, whole_of(content, variables, asks), asks);
  return std::move(out.unused);
}

// One example of the row's answers.
void RowEncoder::judge(EncodedRow& out, const Json& row) const {
  if (out.status != RowStatus::kKept) return;
  if (out.format != RowFormat::kPreference) {
    out.examples[0].answers = {{out.examples[0].size(), label_of(row)}};
    return;
  }
  // Answers that differ behind max_length only.
  if (out.examples[0].ids == out.examples[1].ids) {
    out.status = RowStatus::kNoTargets;
    return out.examples.clear();
  }
  out.examples = {join_answers(out.examples[0], out.examples[1], options_.share_prompts)};
}

// Applies max_length, and drops what has no target.
void RowEncoder::fit(EncodedRow& row) const {
  const int64_t limit = options_.max_length > 0 ? options_.max_length : INT64_MAX;
  std::vector<Example> kept;
  for (Example& example : row.examples) {
    if (example.size() > limit && options_.overflow == Overflow::kError)
      fail("the row has {} tokens, max_length is {}; raise it, or set overflow to truncate, split or drop",
           example.size(), limit);
    if (example.size() > limit && options_.overflow == Overflow::kDrop) row.status = RowStatus::kTooLong;
    if (example.size() <= limit) {
      kept.push_back(std::move(example));
      continue;
    }
    row.was_too_long = true;
    const bool keeps_pair = row.format == RowFormat::kPreference && options_.goal != Goal::kLanguageModel;
    const bool splits = options_.overflow == Overflow::kSplit && !keeps_pair && !compares(options_.goal);
    const int64_t end = splits ? example.size() : limit;
    for (int64_t begin = 0; begin < end; begin += limit) kept.push_back(part_of(example, begin, limit));
  }
  if (row.status == RowStatus::kTooLong) return row.examples.clear();
  row.examples = std::move(kept);
  if (row.format != RowFormat::kPromptOnly) {
    const auto learns_nothing = [](const Example& example) { return example.num_targets() == 0; };
    if (row.format == RowFormat::kPreference && options_.goal != Goal::kLanguageModel) {
      if (std::any_of(row.examples.begin(), row.examples.end(), learns_nothing)) row.examples.clear();
    } else {
      std::erase_if(row.examples, learns_nothing);
    }
  }
  if (row.examples.empty()) row.status = RowStatus::kNoTargets;
  row.tokens_cut = row.full_length - row.num_tokens();
}

std::vector<Example> RowEncoder::examples_of(const Content& content, const Json& variables,
                                             std::optional<RenderedChat> whole, bool prompt_only) const {
  if (prompt_only) return {encode_prompt(whole ? whole->text : content.text, !whole)};
  if (whole) return encode_chat(content, variables, std::move(*whole));
  return {encode_text(content.text, content.target_begin)};
}

void RowEncoder::check_renderer() const {
  if (!render_) fail("the row is a conversation, but the model has no chat template");
}

// Those of every row, then the row's own.
Json RowEncoder::variables_of(const Json& row) const {
  Json variables = options_.template_extra;
  const Json own = template_variables(row);
  for (const auto& [name, value] : own.as_object()) variables.set(name, value);
  return variables;
}

std::optional<RenderedChat> RowEncoder::whole_of(const Content& content, const Json& extra,
                                                 bool as_prompt) const {
  if (!content.chat) return std::nullopt;
  check_renderer();
  RenderedChat whole = as_prompt || options_.loss == LossOn::kAll
                           ? render_whole(content.messages, as_prompt, extra, render_)
                           : render_(content.messages, false, extra);
  check_roles(content.messages, whole.text);
  return whole;
}

std::vector<Example> RowEncoder::encode_chat(const Content& content, const Json& extra,
                                             RenderedChat whole) const {
  if (options_.loss == LossOn::kAll) {
    const std::vector<size_t> answers = answers_in(whole.text, content.messages, extra, render_);
    return {tokenize_all(whole.text, answers, *tokenizer_)};
  }
  const size_t first = options_.loss == LossOn::kLastTurn ? last_turn(content) : content.first_turn;
  const EndCheck has_end = [this](std::string_view text) {
    const std::vector<int32_t> ids = tokenizer_->encode(text);
    return std::any_of(ids.begin(), ids.end(), [this](int32_t id) { return tokenizer_->is_special(id); });
  };
  const std::vector<ChatText> texts =
      render_chat(content.messages, first, extra, render_, has_end, std::move(whole));
  if (texts.size() > 1)
    check_single("the template writes earlier turns of the answer otherwise once later ones follow");
  std::vector<Example> examples;
  for (const ChatText& text : texts)
    for (Example& example : tokenize_turns(text, *tokenizer_)) examples.push_back(std::move(example));
  if (examples.size() > texts.size())
    check_single(
        "an earlier turn of the answer begins or ends in the middle of a token, which is cut only while the "
        "turn is written");
  return examples;
}

// An answer that is compared is one text.
void RowEncoder::check_single(std::string_view why) const {
  if (compares(options_.goal))
    fail(
        "{}, so that it is no single answer; set loss: last_turn, or give the earlier turns as part of the "
        "prompt",
        why);
}

Example RowEncoder::encode_prompt(std::string_view text, bool add_special_tokens) const {
  tokenizers::Encoding tokens =
      add_special_tokens ? tokenizer_->encode_prompt(text) : tokenizer_->encode_with_offsets(text);
  std::vector<uint8_t> mask(tokens.ids.size(), 0);
  return {std::move(tokens.ids), std::move(mask), {}, static_cast<int64_t>(tokens.num_dropped)};
}

// Targets are the text from `target_begin` on and the end-of-text token.
Example RowEncoder::encode_text(std::string_view text, size_t target_begin) const {
  Example example = tokenize_answer(text, target_begin, options_.loss == LossOn::kAll, *tokenizer_);
  if (!options_.eos_id) return example;
  if (example.ids.empty() || example.ids.back() != *options_.eos_id) {
    example.ids.push_back(*options_.eos_id);
    example.loss_mask.push_back(1);
  }
  example.loss_mask.back() = 1;
  return example;
}

}  // namespace temper::data
