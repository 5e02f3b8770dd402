#pragma once
#include <string>
#include <string_view>

#include "base/json/json.h"

// Conversations in the form that chat templates expect, whatever form they came in. Errors name the field.
namespace temper::data {

// messages: [{role, content, …}]. Content given as a list of text parts becomes one text. Reasoning that is
// called reasoning or thinking is given as reasoning_content, too, and as thinking, which some templates read
// (transformers does the same). `train: false` becomes a weight of 0,
// and function_call, an older form, is given as tool_calls, too. Fields that are null or empty are removed;
// an empty content is removed only if there are calls.
Json::Array read_messages(const Json& list, const std::string& field);

bool is_assistant(const Json& message);
// A message with a weight of 0 is not trained on; a weight other than 0 and 1 is an Error. `place` is the
// message's.
bool is_trained(const Json& message, const std::string& place);
bool is_trained(const Json& message, size_t turn);  // at messages[turn]

// The field, where it is a text, or else an empty one.
std::string_view text_in(const Json& message, std::string_view field);

// Whether the turn of ShareGPT is one of the assistant's: who speaks is gpt, function_call or another of
// their names.
bool is_sharegpt_answer(const Json& turn);

// ShareGPT: [{from, value}]; human and gpt (and their other names) become user and assistant, function_call
// becomes tool_calls, observation becomes tool; `weight` and `train` as above.
Json::Array read_sharegpt(const Json& list, const std::string& field);

// The variables of the chat template that a row brings: tools (a list, or JSON text of one), documents and
// chat_template_kwargs.
Json template_variables(const Json& row);

}  // namespace temper::data
