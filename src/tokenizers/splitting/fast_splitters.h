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

// Whether it always cuts between an ASCII letter and a space that an ASCII letter follows, and between a line
// end and a printable ASCII character but '/', looking at no byte behind these.
bool cuts_at_words(PieceScanner scanner);
// Whether it cuts only where numbers and runs of certain characters begin and end, or never.
bool cuts_at_runs(PieceScanner scanner);

// Numbers (\p{N} of Unicode 17) one by one, or in runs.
PieceScanner digit_scanner(bool individual);

}  // namespace temper::tokenizers
