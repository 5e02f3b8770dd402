#pragma once
#include "base/json/json.h"

namespace temper::data {

// Whether the row is a line that 'temper batch' wrote: {"text", "finish", "ids", "log_probs", "input": {…},
// …}.
bool is_answered(const Json& row);

// The row that was answered (`input`), with the line's text in place of the answer that 'temper batch' left
// out of it. Answers that were cut are an Error, and so are rows of formats that have no place for one.
Json answered_row(const Json& line);

// An Error for lines of rollouts.jsonl (docs/grpo.md): they have a text, but of their prompts only the last
// message.
void refuse_rollout(const Json& row);

}  // namespace temper::data
