#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/chat/chat.h"

// What a conversation says and the chat template's text of it does not hold.
namespace temper::data {

struct Losses {
  std::vector<std::string> lost = {};    // alike for all rows: "the chat template leaves out tools"
  std::vector<std::string> unread = {};  // fields that it does not look at: "messages[].name"
};

// What is made of a conversation.
enum class Rendering {
  kPrompt,  // a text that asks for an answer
  kWhole,   // one text, trained on all its tokens
  kTurns,   // texts with answers that are trained on, some from a text of the conversation up to them
};

// `whole` is the text of all messages. What the template wrote is counted by its trace, and where that does
// not show it, looked for in the text. Reasoning before the last message of the user is no loss of a prompt:
// templates leave it out on purpose.
Losses losses_of(const Json::Array& messages, Rendering rendering, const Json& extra,
                 const ChatRenderer& render, const RenderedChat& whole);

// Whether the text holds the names and arguments of all calls.
bool holds_calls(const Json::Array& messages, const RenderedChat& chat);

// Unless it is among them, or they are kNamesKept.
void add_once(std::vector<std::string>& names, const std::string& name);

constexpr size_t kNamesKept = 1024;   // of one row
constexpr size_t kNamesCounted = 64;  // names and losses may be made of data

// Adds 1 to the count of each name; at most kNamesCounted names are counted.
void count_names(std::map<std::string, int64_t>& counts, const std::vector<std::string>& names);

using PlaceOf = std::function<std::string()>;  // "file:LINE"; called only to report something

// Warns once of each loss, with the row that has it; further rows with it are for the caller to count.
void warn_of_losses(const PlaceOf& place, const std::vector<std::string>& lost);
// The same for what is no loss, as information.
void log_notes(const PlaceOf& place, const std::vector<std::string>& notes);

}  // namespace temper::data
