#pragma once
#include <string>

#include "base/json.h"

// Conversations in the form that chat templates expect, whatever form they came in. Errors name the field.
namespace temper::data {

// messages: [{role, content, …}]. Content given as a list of text parts becomes one text. Reasoning that is
// called reasoning or thinking is given as reasoning_content, too, and as thinking, which some templates read
// (transformers does the same). `train: false` becomes a weight of 0.
Json::Array read_messages(const Json& list, const std::string& field);

// ShareGPT: [{from, value}]; human and gpt (and their other names) become user and assistant, function_call
// becomes tool_calls, observation becomes tool; `weight` and `train` as above.
Json::Array read_sharegpt(const Json& list, const std::string& field);

// The variables of the chat template that a row brings: tools (a list, or JSON text of one), documents and
// chat_template_kwargs.
Json template_variables(const Json& row);

// The messages with the arguments of tool calls as objects, or as JSON text; as they are where they cannot
// be.
enum class Arguments { kObjects, kText };
Json::Array with_arguments(const Json::Array& messages, Arguments form);

}  // namespace temper::data
