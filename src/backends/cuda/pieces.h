#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tensor/host_inputs.h"

namespace temper::backends {

// Many tensors are worked on by one launch: cut into pieces of equal size, numbered through. A block finds
// its tensor by the first piece of each.
inline constexpr int64_t kPiece = 1 << 14;  // elements

inline int64_t pieces_of(int64_t elements) { return (elements + kPiece - 1) / kPiece; }

// A table of plain structs, brought for one launch. The name tells tables of one piece of work apart.
template <class Entry>
Tensor upload(const std::string& name, std::vector<Entry> entries, Device device) {
  const auto bytes = static_cast<int64_t>(entries.size() * sizeof(Entry));
  return from_host(name, {bytes}, DType::kU8, device, [entries = std::move(entries), bytes](std::byte* to) {
    std::memcpy(to, entries.data(), static_cast<size_t>(bytes));
  });
}

// The entry whose pieces include this one.
template <class Entry>
__device__ inline const Entry& entry_of(const Entry* entries, int count, int64_t piece) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (entries[middle].first_piece <= piece)
      low = middle;
    else
      high = middle;
  }
  return entries[low];
}

}  // namespace temper::backends
