#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/models/merge_table.h"
#include "tokenizers/splitting/segmenter.h"
#include "tokenizers/tokens/vocabulary.h"

// Reading the "model" of a tokenizer.json.
namespace temper::tokenizers {

void check_model(const Json& model, std::string_view where);  // refuses what is not supported
Vocabulary::Entries read_vocabulary(const Json& model, std::string_view where);

// The pre-tokenizer and the model of a file that was read from `where`.
std::unique_ptr<const Segmenter> make_segmenter(const Json& pre_tokenizer, const Json& model,
                                                const Vocabulary& vocabulary, const std::string& where);

}  // namespace temper::tokenizers
