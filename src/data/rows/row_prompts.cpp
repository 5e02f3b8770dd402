// What rows ask for.
#include "base/error.h"
#include "base/text.h"
#include "data/chat/losses.h"
#include "data/chat/messages.h"
#include "data/rows/row.h"

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
  if (!row.unused.empty()) add_once(row.notes, "nothing reads " + list_some(row.unused, ", ", 20));
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
    return {prompt, encode_prompt(prompt, true).ids, content.text.substr(content.target_begin)};
  }
  const Json& answer = content.messages.back();
  if (content.messages.size() < 2 || !is_assistant(answer) || !field_of(answer, "content"))
    fail("the row does not end with an answer of the assistant");
  Json::Array before(content.messages.begin(), content.messages.end() - 1);
  check_renderer();
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
  std::optional<RenderedChat> whole = whole_of(content, variables, true);
  EncodedRow told;
  told.format = format_of_renamed(row);
  add_losses(told, content, row, variables, whole, true);
  note_unread(told);
  Asked asked{std::move(examples_of(content, variables, std::move(whole), true).at(0).ids), {}};
  if (content.chat) asked.messages = std::move(content.messages);
  asked.lost = std::move(told.lost);
  asked.notes = std::move(told.notes);
  return asked;
}

std::vector<int32_t> RowEncoder::prompt_of(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  const Content content = prompt_content(row);
  const Json variables = variables_of(row);
  return examples_of(content, variables, whole_of(content, variables, true), true).at(0).ids;
}

Json RowEncoder::messages_of(const Json& given) const {
  Json storage;
  const Content content = prompt_content(renamed(given, storage));
  return content.chat ? Json(content.messages) : Json();
}

AskedText RowEncoder::prompt_text(const Json::Array& messages, const Json& given) const {
  check_renderer();
  Json storage;
  const Json& row = renamed(given, storage);
  const Json variables = variables_of(row);
  Content content;
  content.chat = true;
  content.messages = messages;
  std::optional<RenderedChat> whole = render_whole(messages, true, variables, render_);
  EncodedRow told;
  told.format = RowFormat::kPromptOnly;
  add_losses(told, content, row, variables, whole, true);
  note_unread(told);
  return {std::move(whole->text), std::move(told.lost), std::move(told.notes)};
}

}  // namespace temper::data
