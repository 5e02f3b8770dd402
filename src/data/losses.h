#pragma once
#include <string>
#include <vector>

#include "data/chat.h"

// What a conversation says and the chat template's text of it does not hold.
namespace temper::data {

struct Losses {
  std::vector<std::string> lost = {};    // alike for all rows: "the chat template leaves out tools"
  std::vector<std::string> unread = {};  // fields that it does not look at: "messages[].name"
};  // for people, alike for all rows: "the chat template leaves out content of role 'tool'"
std::vector<std::string> unread =
    {};  // fields of messages that the template does not look at: "messages[].name"
};

// What the template wrote is counted by its trace, and where that does not show it, looked for in the text.
// An answer may also stand in the text of the conversation up to it, which it is learnt from then.
// `as_prompt`: the text asks for an answer.
Losses losses_of(const Json::Array& messages, bool as_prompt, const Json& extra, const ChatRenderer& render);

// Whether the text holds the names and arguments of all calls.
bool holds_calls(const Json::Array& messages, const RenderedChat& chat);

void add_once(std::vector<std::string>& names, const std::string& name);

// Warns once of each loss, with the row that has it; further rows with it are for the caller to count.
void tell_losses(const std::string& place, const std::vector<std::string>& lost);

}  // namespace temper::data
