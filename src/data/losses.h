#pragma once
#include <string>
#include <vector>

#include "data/chat.h"

// What a conversation says and the chat template's text of it does not hold.
namespace temper::data {

struct Losses {
  std::vector<std::string> lost = {};    // alike for all rows: "the chat template leaves out tools"
  std::vector<std::string> unread = {};  // fields that it does not look at: "messages[].name"
};

// What is made of a conversation.
enum class Rendering {
  kPrompt,  // a text that asks for an answer
  kWhole,   // one text, all of which is learnt
  kTurns,   // texts of which answers are learnt, some from a text of the conversation up to them
};

// What the template wrote is counted by its trace, and where that does not show it, looked for in the text.
Losses losses_of(const Json::Array& messages, Rendering rendering, const Json& extra,
                 const ChatRenderer& render);

// Whether the text holds the names and arguments of all calls.
bool holds_calls(const Json::Array& messages, const RenderedChat& chat);

void add_once(std::vector<std::string>& names, const std::string& name);

// Warns once of each loss, with the row that has it; further rows with it are for the caller to count.
void tell_losses(const std::string& place, const std::vector<std::string>& lost);

}  // namespace temper::data
