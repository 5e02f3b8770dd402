// What rows say and their texts do not.
#include "base/error.h"
#include "data/losses.h"
#include "data/messages.h"
#include "data/row.h"

namespace temper::data {

void RowEncoder::add_losses(EncodedRow& row, const Content& content, const Json& variables) const {
  if (!content.chat) {
    for (const char* name : {"tools", "documents"})
      if (variables.find(name)) add_once(row.unused, name);
    if (render_) add_once(row.lost, "the row is plain text, so it is not put into the model's chat template");
    return;
  }
  if (!render_) return;
  const Rendering learnt = options_.loss == LossOn::kAll ? Rendering::kWhole : Rendering::kTurns;
  const bool asks = row.format == RowFormat::kPromptOnly;
  const Losses losses = losses_of(content.messages, asks ? Rendering::kPrompt : learnt, variables, render_);
  for (const std::string& loss : losses.lost) add_once(row.lost, loss);
  for (const std::string& field : losses.unread) add_once(row.unused, field);
  for (const Json& message : content.messages)
    if (const std::string_view role = text_in(message, "role");
        !is_known_role(role) && options_.template_reads && !options_.template_reads(role))
      add_once(row.lost, fmt::format("role '{}' is none that the chat template names", role));
}

std::vector<std::string> RowEncoder::losses_of_prompt(const Json& given) const {
  Json storage;
  const Json& row = renamed(given, storage);
  EncodedRow asked;
  asked.format = RowFormat::kPromptOnly;
  add_losses(asked, prompt_content(row), variables_of(row));
  return std::move(asked.lost);
}

std::vector<std::string> RowEncoder::losses_of_prompt(const Json::Array& messages, const Json& given) const {
  Json storage;
  Content content;
  content.chat = true;
  content.messages = messages;
  EncodedRow asked;
  asked.format = RowFormat::kPromptOnly;
  add_losses(asked, content, variables_of(renamed(given, storage)));
  return std::move(asked.lost);
}

}  // namespace temper::data
