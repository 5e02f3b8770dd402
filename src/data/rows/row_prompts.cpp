// What rows ask for.
#include "base/error.h"
#include "base/text.h"
#include "data/chat/losses.h"
#include "data/chat/messages.h"
#include "data/rows/content_encoder.h"
#include "data/rows/row_losses.h"

namespace temper::data {
namespace {

void check_texts(const Json& row) {
  check_characters(row, "");
  check_size(row);
  refuse_media(row);
}

// Fields of messages that the template does not look at: rows that are asked have no list of unused fields.
void note_unread(EncodedRow& row) {
  std::erase_if(row.unused, [](const std::string& name) { return !name.starts_with("messages[]."); });
  if (!row.unused.empty()) add_once(row.notes, "unused fields: " + list_some(row.unused, ", ", 20));
}

}  // namespace

Question RowEncoder::question_of(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  check_texts(row);
  const Content content = contents_of(row, format_of_renamed(row)).at(0);
  if (!content.chat) {
    const std::string prompt = content.text.substr(0, content.target_begin);
    if (prompt.empty()) fail("the row has no completion after a prompt to generate");
    return {prompt, content_encoder().encode_prompt(prompt, true).ids,
            content.text.substr(content.target_begin)};
  }
  const Json& answer = content.messages.back();
  if (content.messages.size() < 2 || !is_assistant(answer) || !field_of(answer, "content"))
    fail("the row does not end with an answer of the assistant");
  Json::Array before(content.messages.begin(), content.messages.end() - 1);
  content_encoder().check_renderer();
  const std::string prompt = render_whole(before, true, variables_of(row), render_).text;
  const Json* asked = field_of(before.back(), "content");
  return {asked ? asked->as_string() : "", tokenizer_->encode(prompt), answer.at("content").as_string()};
}

// What a row says without its answer.
Content RowEncoder::prompt_content(const Json& row) const {
  check_texts(row);
  const RowFormat format = format_of_renamed(row);
  Content content = contents_of(row, format).at(0);
  const bool paired = format == RowFormat::kPromptCompletion || format == RowFormat::kPreference;
  if (!content.chat && paired) content.text.resize(content.target_begin);
  if (content.chat && paired) content.messages.resize(content.first_turn);
  if (options_.drop_answer) {
    if (!content.chat && content.target_begin > 0) content.text.resize(content.target_begin);
    while (content.chat && !content.messages.empty() && is_assistant(content.messages.back()))
      content.messages.pop_back();
    if (content.chat && content.messages.empty())
      fail("the row is an answer of the assistant without a question");
  }
  if (content.chat && is_assistant(content.messages.back()))
    fail("the row ends with an answer of the assistant; leave it out to get another one");
  return content;
}

Asked RowEncoder::asked_of(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  Content content = prompt_content(row);
  const Json variables = variables_of(row);
  std::optional<RenderedChat> whole = content_encoder().text_of(content, variables, true);
  EncodedRow report;
  report.format = format_of_renamed(row);
  add_losses(report, {content, row, variables, whole, true}, options_, render_);
  note_unread(report);
  Asked asked{std::move(content_encoder().examples_of(content, variables, std::move(whole), true).at(0).ids),
              {}};
  if (content.chat) asked.messages = std::move(content.messages);
  asked.lost = std::move(report.lost);
  asked.notes = std::move(report.notes);
  return asked;
}

std::vector<int32_t> RowEncoder::prompt_of(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  const Content content = prompt_content(row);
  const Json variables = variables_of(row);
  return content_encoder()
      .examples_of(content, variables, content_encoder().text_of(content, variables, true), true)
      .at(0)
      .ids;
}

Json RowEncoder::messages_of(const Json& given) const {
  Json storage;
  const Content content = prompt_content(renamed(given, storage));
  return content.chat ? Json(content.messages) : Json();
}

AskedText RowEncoder::prompt_text(const Json::Array& messages, const Json& given) const {
  content_encoder().check_renderer();
  Json storage;
  const Json& row = renamed(given, storage);
  const Json variables = variables_of(row);
  Content content;
  content.chat = true;
  content.messages = messages;
  std::optional<RenderedChat> whole = render_whole(messages, true, variables, render_);
  EncodedRow report;
  report.format = RowFormat::kPromptOnly;
  add_losses(report, {content, row, variables, whole, true}, options_, render_);
  note_unread(report);
  return {std::move(whole->text), std::move(report.lost), std::move(report.notes)};
}

}  // namespace temper::data
