#pragma once
#include <string_view>
#include <vector>

#include "tokenizers/unicode/character_classes.h"

namespace temper::tokenizers {

// The size of the first piece when a text is cut at the matches of a pattern, and what lies between matches
// is a piece as well. `text` is valid UTF-8 and not empty.
using PieceScanner = size_t (*)(const CodePointTable& classes, std::string_view text);

// A scanner for the patterns of well-known tokenizers, written for Oniguruma; null for any other pattern.
// It cuts exactly as PCRE2 does with the rewritten pattern.
PieceScanner known_scanner(std::string_view regex);
std::vector<std::string_view> known_patterns();

// Numbers (\p{N} of Unicode 17) one by one, or in runs.
PieceScanner digit_scanner(bool individual);

}  // namespace temper::tokenizers
