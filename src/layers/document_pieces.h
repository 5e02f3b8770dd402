#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace temper::layers {

// f(document, its first token there, the end of its tokens there) for the documents that have some of the
// tokens [first, end), in their order. `starts`: cu_seqlens.
template <class F>
void for_each_piece(std::span<const int32_t> starts, int64_t first, int64_t end, const F& f) {
  for (size_t d = 0; d + 1 < starts.size(); ++d) {
    const auto from = std::max(starts[d], static_cast<int32_t>(first)),
               until = std::min(starts[d + 1], static_cast<int32_t>(end));
    if (from < until) f(d, from, until);
  }
}

}  // namespace temper::layers
