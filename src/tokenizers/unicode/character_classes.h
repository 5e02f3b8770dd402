#pragma once
#include "tokenizers/unicode/code_point_table.h"

namespace temper::tokenizers {

// What the known patterns tell apart. A character has one of these, or none (controls, private use,
// unassigned).
enum CharacterClass : uint8_t {
  kUpper = 1,      // \p{Lu} \p{Lt}
  kLower = 2,      // \p{Ll}
  kCaseless = 4,   // \p{Lm} \p{Lo}
  kMark = 8,       // \p{M}
  kNumber = 16,    // \p{N}
  kSymbol = 32,    // \p{P} \p{S}
  kSpace = 64,     // \s
  kNewline = 128,  // CR and LF, which are kSpace, too
  kLetter = kUpper | kLower | kCaseless
};

// By the tables of Unicode 16, as in patterns; made once, at the first call.
const CodePointTable& character_classes();

}  // namespace temper::tokenizers
