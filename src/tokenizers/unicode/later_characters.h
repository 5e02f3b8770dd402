#pragma once
#include <string_view>

// Characters that Unicode 15 and 16 added, or gave a property. PCRE2's own tables may be those of Unicode 14,
// the `tokenizers` library's are those of Unicode 16.
namespace temper::tokenizers {

// Those that have a property now, as items of a PCRE2 class: "L", "Nd", "Alphabetic", "sc:Han", …; "" where
// there is none.
std::string_view later_characters(std::string_view property);

std::string_view later_assigned();  // all that were added

}  // namespace temper::tokenizers
