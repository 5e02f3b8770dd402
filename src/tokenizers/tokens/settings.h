#pragma once
#include <optional>
#include <string>

#include "base/json/json.h"
#include "tokenizers/tokens/post_processor.h"
#include "tokenizers/tokens/vocabulary.h"

namespace temper::tokenizers {

// What add_bos_token and add_eos_token of a tokenizer_config.json put around texts, for the classes where
// transformers 4 lets them replace the post-processor (LlamaTokenizer and its like). Nothing for other
// classes and where neither is set. Errors start with `where`.
std::optional<PostProcessor> frame_of_settings(const Json& settings, const Vocabulary& vocabulary,
                                               const std::string& where);

}  // namespace temper::tokenizers
