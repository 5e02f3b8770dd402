#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/tokens/added_tokens.h"

namespace temper::tokenizers {

// The files of a model's folder that declare tokens in addition to its tokenizer.json.
struct TokenFiles {
  std::string folder;
  Json settings;       // tokenizer_config.json; null where there is none, as below
  Json special_names;  // special_tokens_map.json
  Json added;          // added_tokens.json
  static TokenFiles read(const std::string& folder);
};

// The added tokens that all files of a folder declare together; `own` are those of tokenizer.json, whose
// model has the tokens `model`. As in transformers:
// - added_tokens_decoder of tokenizer_config.json and added_tokens.json state tokens with their ids; how a
//   token is recognized (special, lstrip, …) is what the former says, where it says anything. A warning names
//   those with an id that is not below `vocab_size` (0: not known), which are left out;
// - tokens that have a name in tokenizer_config.json or special_tokens_map.json (eos_token,
//   additional_special_tokens, …) are special. One without an id gets the next one, where that is below
//   `vocab_size`, the model's; else a warning names it.
// Two ids of a token, or two tokens of an id, are an Error that names both and their files; of
// added_tokens.json with an added_tokens_decoder a warning, and the latter counts.
std::vector<AddedToken> declared_tokens(const TokenFiles& files, std::vector<AddedToken> own,
                                        const Vocabulary::Entries& model, int64_t vocab_size);

}  // namespace temper::tokenizers
