#pragma once
#include <string>

#include "rollout/request.h"
#include "tokenizers/tokenizer.h"

namespace temper::rollout {

const char* name_of(Finish finish);  // for files: "stop", "length", "context" or "failed"

// What an answer says, without what ended it. `had_stop_strings`: of its request.
std::string said_text(const Completion& answer, const tokenizers::Tokenizer& tokenizer, bool had_stop_strings,
                      bool skip_special_tokens);

}  // namespace temper::rollout
