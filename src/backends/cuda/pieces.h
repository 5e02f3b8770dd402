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

// A table of plain structs, brought for one launch. Its contents are its name: an address in it may be that
// of memory which another table of the same piece of work has named before, and which was free in between.
template <class Entry>
Tensor upload(std::string name, std::vector<Entry> entries, Device device) {
  const auto bytes = static_cast<int64_t>(entries.size() * sizeof(Entry));
  name.append(reinterpret_cast<const char*>(entries.data()), static_cast<size_t>(bytes));
  return from_host(name, {bytes}, DType::kU8, device, [entries = std::move(entries), bytes](std::byte* to) {
    std::memcpy(to, entries.data(), static_cast<size_t>(bytes));
  });
}

// The entry whose pieces include this one. Every warp asks as a whole: its lanes look at 32 entries at once,
// since a block waits for each look.
template <class Entry>
__device__ inline const Entry& entry_of(const Entry* entries, int count, int64_t piece) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, high = count;
  while (high - low > 1) {
    const int step = (high - low + 31) / 32, at = low + lane * step;
    const bool begun = at < high && entries[at].first_piece <= piece;
    low += (__popc(__ballot_sync(0xffffffffu, begun)) - 1) * step;
    high = min(high, low + step);
  }
  return entries[low];
}

}  // namespace temper::backends
