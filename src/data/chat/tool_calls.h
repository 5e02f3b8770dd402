#pragma once
#include <string>

#include "base/json/json.h"

// Calls of tools in messages: [{type, function: {name, arguments}}]. Errors name the field.
namespace temper::data {

// Checks a message's tool_calls, and gives function_call, an older form of one call, as tool_calls, too.
// Blank text of arguments is removed.
void read_calls(Json& message, const std::string& place);

// tool_calls from JSON text of a call, {"name": …, "arguments": …}, or of a list of them.
Json::Array calls_of_text(const std::string& text, const std::string& field);

// The messages with the arguments of tool calls as objects, or as JSON text; as they are where they cannot
// be. The last form is objects without the nulls that their text holds; absent ones are empty there.
enum class Arguments { kAsGiven, kObjects, kText, kFilled };
Json::Array with_arguments(const Json::Array& messages, Arguments form);

}  // namespace temper::data
