#pragma once
#include <memory>
#include <string>

#include "base/json/json.h"
#include "tokenizers/text/normalizer.h"

namespace temper::tokenizers {

// SentencePiece's table of replacements ("precompiled_charsmap"): base64 of a double-array trie in the format
// of Darts-clone, whose values say where in the texts behind it a replacement begins.
std::unique_ptr<const NormalizerStep> make_precompiled(const Json& component, const std::string& place);

}  // namespace temper::tokenizers
