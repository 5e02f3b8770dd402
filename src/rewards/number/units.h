#pragma once
#include <string_view>

namespace temper::rewards {

// Whether `text`, which stands right behind a number, is nothing or a unit that does not change the number:
// degrees, a currency, \text{…} (\mathrm, \textrm, \mbox) without digits, or words behind a space, the first
// of which has two letters at least; each may have an exponent. Words that could be part of the number are
// none: pi, million, half, and, over, squared and the like.
bool is_unit(std::string_view text);

}  // namespace temper::rewards
