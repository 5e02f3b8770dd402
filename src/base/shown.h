#pragma once
#include <string>
#include <string_view>

namespace temper {

// A text as a terminal may show it. Names of files, keys, rows, answers and messages of other programs come
// from others: control characters (all but \n and \t), which could move the cursor or write commands, and
// marks that turn the order of a line around are spelled out: \x1b, \r, \u009b, \u202e; bytes that are no
// UTF-8 are \xff. What is shown stays as it is when it is shown again.
std::string shown(std::string_view text);

// The same for messages, of which the middle is left out where they are longer than a screen or two.
std::string shown_message(std::string_view text);

// At most `most` bytes of UTF-8, in whole characters, and "…" for the rest.
std::string shortened(std::string_view text, size_t most = 200);

}  // namespace temper
