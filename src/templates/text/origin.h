#pragma once
#include <cstddef>
#include <vector>

namespace temper::templates {

// What a message's bytes are. Thinking counts as reasoning where it stands in the content, too; kOther is
// every other field and the tags around such thinking, kSeveral a text that was made of more than one of
// these at once.
enum class Field { kContent, kReasoning, kToolCalls, kOther, kSeveral };

// Where a text came from: the index of the message, and which of its fields.
struct Source {
  size_t message = 0;
  Field field = Field::kContent;
  bool operator==(const Source&) const = default;
};

// Bytes [begin, end) of a text came from there.
struct Origin {
  size_t begin, end;
  Source source;
};
using Origins = std::vector<Origin>;  // ascending, without overlaps; neighbours of one source are one

}  // namespace temper::templates
