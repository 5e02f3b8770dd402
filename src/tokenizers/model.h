#pragma once
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizers/merge_table.h"
#include "tokenizers/vocabulary.h"

// Reading the "model" of a tokenizer.json.
namespace temper::tokenizers {

void check_model(const Json& model, std::string_view where);  // refuses what is not byte-level BPE
Vocabulary::Entries read_vocabulary(const Json& model, std::string_view where);
std::vector<Merge> read_merges(const Json& model, const Vocabulary& vocabulary, std::string_view where);

}  // namespace temper::tokenizers
