#pragma once
#include <cstddef>
#include <vector>

namespace temper::templates {

// Bytes [begin, end) of a text came from the message with this index.
struct Origin {
  size_t begin, end;
  size_t message;
};
using Origins = std::vector<Origin>;  // ascending, without overlaps; neighbours of one message are one

}  // namespace temper::templates
