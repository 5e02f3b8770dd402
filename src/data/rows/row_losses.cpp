#include "data/rows/row_losses.h"

#include "base/error.h"
#include "data/chat/empty_values.h"
#include "data/chat/losses.h"
#include "data/chat/messages.h"

namespace temper::data {
namespace {

constexpr std::string_view kNoTemplate =
    "the row is plain text, so it is not put into the model's chat template";

// Instructions put it into their text.
bool reads_system(RowFormat format) { return format == RowFormat::kAlpaca; }

}  // namespace

void add_losses(EncodedRow& row, const SaidText& said, const RowOptions& options,
                const ChatRenderer& render) {
  if (!said.text) {
    std::vector<std::string> unread;
    const Json* system = said.row.find("system");
    if (system && holds_something(*system) && !reads_system(row.format)) unread.emplace_back("system");
    for (const char* name : {"tools", "documents"})
      if (said.variables.find(name)) unread.emplace_back(name);
    for (const std::string& name : unread) {
      add_once(row.unused, name);
      if (said.as_prompt) add_once(row.lost, fmt::format("the prompt is plain text, without {}", name));
    }
    // Text without an answer is what models are trained on further; nothing of it is missing.
    if (render) add_once(row.format == RowFormat::kText ? row.notes : row.lost, std::string(kNoTemplate));
    return;
  }
  const Rendering trained = options.loss == LossOn::kAll ? Rendering::kWhole : Rendering::kTurns;
  const Losses losses = losses_of(said.content.messages, said.as_prompt ? Rendering::kPrompt : trained,
                                  said.variables, render, *said.text);
  for (const std::string& loss : losses.lost) add_once(row.lost, loss);
  for (const std::string& field : losses.unread) add_once(row.unused, field);
  for (const Json& message : said.content.messages)
    if (const std::string_view role = text_in(message, "role");
        !is_known_role(role) && options.template_reads && !options.template_reads(role))
      add_once(row.lost, "a message has a role that is not in the chat template");
}

}  // namespace temper::data
