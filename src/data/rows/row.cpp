#include "data/rows/row.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/chat/empty_answers.h"
#include "data/chat/messages.h"
#include "data/chat/picture_parts.h"
#include "data/chat/spellings.h"
#include "data/pictures/row_pictures.h"
#include "data/rows/answered_rows.h"
#include "data/rows/answers.h"
#include "data/rows/content_encoder.h"
#include "data/rows/picture_encoder.h"
#include "data/rows/row_length.h"
#include "data/rows/row_losses.h"
#include "data/rows/token_rows.h"
#include "data/rows/unused_fields.h"

namespace temper::data {
namespace {

// Next to text alone a picture is metadata; conversations and prompts speak of it.
bool is_text_alone(RowFormat format) {
  return format == RowFormat::kText || format == RowFormat::kTokens || format == RowFormat::kClassification;
}

// A row that says nothing about what to predict.
void check_goal(RowFormat format, const RowOptions& options) {
  if (options.goal == Goal::kAny) return;
  if (options.goal != Goal::kLanguageModel) return check_judged(format, options.goal);
  if (format == RowFormat::kPreference && !options.learn_chosen)
    fail(
        "the row is a preference (chosen, rejected); recipe sft can train on the chosen answer only; "
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
  if (!options_.pictures) return;
  const PictureEncoder pictures(*options_.pictures, tokenizer);
  pictures.check_tokens();
  if (render_) render_ = with_picture_parts(std::move(render_), pictures.pad());
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

ContentEncoder RowEncoder::content_encoder() const { return {*tokenizer_, render_, options_}; }

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

EncodedRow RowEncoder::encode(const Json& given, const std::string& folder) const {
  Json storage, marked;
  const Json& as_given = renamed(given, storage);
  check_characters(as_given, "");
  check_size(as_given);
  EncodedRow out;
  out.format = format_of_renamed(as_given);
  std::optional<PictureEncoder> pictures;
  if (options_.pictures) pictures.emplace(*options_.pictures, *tokenizer_);
  const bool sees = pictures && may_name_pictures(as_given, out.format) && names_pictures(as_given);
  if (!sees && !is_text_alone(out.format)) refuse_media(as_given);
  if (sees) marked = pictures->take(as_given, folder);
  const Json& row = sees ? marked : as_given;
  check_goal(out.format, options_);
  out.unused = unused_fields(row, out.format, options_);
  if (out.format == RowFormat::kTokens)
    out.examples.push_back(read_tokens(
        row, options_.vocab_size > 0 ? options_.vocab_size : tokenizer_->vocab_size(), options_.loss));
  else
    encode_contents(out, row, pictures ? &*pictures : nullptr);
  if (out.status == RowStatus::kEmptyAnswer) return out;
  if (pictures)
    for (Example& example : out.examples) pictures->expand(example);
  out.full_length = out.num_tokens();
  for (const Example& example : out.examples) out.bytes_dropped += example.bytes_dropped;
  if (compares(options_.goal)) check_answers(out);
  fit(out, options_);
  if (compares(options_.goal)) judge(out, row, options_.share_prompts);
  return out;
}

void RowEncoder::drop_empty_answers(EncodedRow& out, Content& content) const {
  if (options_.on_empty_answer == OnEmptyAnswer::kLearn || out.format == RowFormat::kPromptOnly) return;
  const EmptyAnswers empty = find_empty_answers(content);
  if (empty.nothing) out.status = RowStatus::kEmptyAnswer;
  if (options_.loss == LossOn::kAll) return;  // all other turns are trained on as well
  out.empty_turns = empty.turns;
  if (empty.turns > 0) leave_out_empty_answers(content);
}

void RowEncoder::encode_contents(EncodedRow& out, const Json& row, const PictureEncoder* pictures) const {
  std::vector<Content> contents = contents_of(row, out.format);
  if (pictures) pictures->write(contents);
  if (compares(options_.goal)) check_said(contents);
  if (contents.size() == 1 && !compares(options_.goal)) drop_empty_answers(out, contents[0]);
  if (out.status == RowStatus::kEmptyAnswer) return;
  const Json variables = variables_of(row);
  const bool asks = out.format == RowFormat::kPromptOnly;
  for (const Content& content : contents) {
    std::optional<RenderedChat> whole = content_encoder().text_of(content, variables, asks);
    add_losses(out, {content, row, variables, whole, asks}, options_, render_);
    for (Example& example : content_encoder().examples_of(content, variables, std::move(whole), asks))
      out.examples.push_back(std::move(example));
  }
}

std::vector<std::string> RowEncoder::unused_of(const Json& given) const {
  Json storage;
  const Json* renamed_row = &renamed(given, storage);
  EncodedRow out;
  out.format = format_of_renamed(*renamed_row);
  const bool sees =
      options_.pictures && may_name_pictures(*renamed_row, out.format) && names_pictures(*renamed_row);
  const Json marked = sees ? row_with_marks(*renamed_row) : Json();
  const Json& row = sees ? marked : *renamed_row;
  out.unused = unused_fields(row, out.format, options_);
  if (out.format == RowFormat::kTokens) return std::move(out.unused);
  const Json variables = variables_of(row);
  const bool asks = out.format == RowFormat::kPromptOnly;
  for (const Content& content : contents_of(row, out.format))
    add_losses(out, {content, row, variables, content_encoder().text_of(content, variables, asks), asks},
               options_, render_);
  return std::move(out.unused);
}

// Those of every row, then the row's own.
Json RowEncoder::variables_of(const Json& row) const {
  Json variables = options_.template_extra;
  const Json own = template_variables(row);
  for (const auto& [name, value] : own.as_object()) variables.set(name, value);
  return variables;
}

}  // namespace temper::data
