#include "layers/context_keys.h"

#include "layers/document_pieces.h"

namespace temper::layers {
namespace {

void append_rows(int32_t first, int32_t end, std::vector<int32_t>& rows) {
  for (int32_t row = first; row < end; ++row) rows.push_back(row);
}

}  // namespace

ContextKeys context_keys(const DecoderInput& input, std::span<const TokenRange> own) {
  const auto starts = input.cu_seqlens.values<int32_t>();
  std::vector<int32_t> starts_q{0}, starts_k{0}, seen;
  for (const TokenRange& range : own)
    for_each_piece(
        starts, range.first, range.first + range.count, [&](size_t d, int32_t from, int32_t until) {
          const int32_t before = input.continued.empty() ? -1 : input.continued[d];
          if (before >= 0)
            append_rows(starts[static_cast<size_t>(before)], starts[static_cast<size_t>(before) + 1], seen);
          append_rows(starts[d], until, seen);
          starts_q.push_back(starts_q.back() + until - from);
          starts_k.push_back(static_cast<int32_t>(seen.size()));
        });
  return {Tensor::from(starts_q), Tensor::from(starts_k), {Tensor::from(seen), input.ids.numel(), true}};
}

}  // namespace temper::layers
