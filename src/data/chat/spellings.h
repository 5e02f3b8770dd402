#pragma once
#include "base/json/json.h"
#include "data/chat/fields.h"

// The names that data sets have for the same things, made the names that the rest of this folder reads.
namespace temper::data {

// A question and an answer by other names become instruction and output, where the row has the fields of no
// format: question, query or problem with answer, response or solution (its own partner first), instruction
// with response; context becomes input and system_prompt becomes system. Rows with several questions, or with
// a question and two answers of other pairs, are left alone.
// Turns that stand in a text as JSON become a list: messages and conversations always, prompt, completion,
// chosen and rejected where the text is such a list. So do other fields that are no texts
// (history, tools, input_ids, …), where they are JSON text; an empty text there is null. Errors name the
// field.
void respell(Json& row);                 // row is an object
bool needs_respelling(const Json& row);  // whether that would change it; cheap

}  // namespace temper::data
