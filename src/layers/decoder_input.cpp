#include "layers/decoder_input.h"

#include <algorithm>

#include "base/error.h"

namespace temper::layers {

DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                        std::vector<int32_t> continued, const Tensor& media_positions) {
  std::vector<int32_t> positions, starts{0};
  for (size_t d = 0; d < document_lengths.size(); ++d) {
    const int32_t before = continued.empty() ? -1 : continued[d];
    invariant(before < static_cast<int32_t>(d) && (before < 0 || continued[static_cast<size_t>(before)] < 0),
              "a document continues one before it, which continues none");
    const int32_t first = before < 0 ? 0 : document_lengths[static_cast<size_t>(before)];
    for (int32_t i = 0; i < document_lengths[d]; ++i) positions.push_back(first + i);
    starts.push_back(starts.back() + document_lengths[d]);
  }
  if (positions.size() != ids.size())
    fail("documents of {} tokens in all, but {} token ids", positions.size(), ids.size());
  const auto tokens = static_cast<int64_t>(ids.size());
  if (media_positions.defined()) {
    if (media_positions.shape() != Shape{3, tokens})
      fail("positions of pictures are {}, needs {}", to_string(media_positions.shape()),
           to_string(Shape{3, tokens}));
    const auto more = media_positions.values<int32_t>();
    positions.insert(positions.end(), more.begin(), more.end());
  }
  const int64_t rows = media_positions.defined() ? 4 : 1;
  return {Tensor::from(ids, {tokens}), Tensor::from<int32_t>(positions, {rows, tokens}), Tensor::from(starts),
          std::move(continued)};
}

Tensor rotary_positions(const Tensor& positions) {
  if (positions.dim(0) > 1) return positions.narrow(0, 1, 3);
  return positions.reshape({positions.dim(1)});
}

namespace {

void check_sections(const Tensor& positions, int64_t tokens) {
  const int64_t rows = positions.dim(0);
  if (rows != 1 && rows != 4)
    fail("positions is {}, needs 1 row, or 4: places, times, heights and widths",
         to_string(positions.shape()));
  const auto values = positions.values<int32_t>();
  for (auto i = static_cast<size_t>(tokens); i < values.size(); ++i)
    if (values[i] < 0)
      fail("token {} has a time, height or width of {}, needs 0 or more", static_cast<int64_t>(i) % tokens,
           values[i]);
}

}  // namespace

void check_boundaries(const DecoderInput& input) {
  check_sections(input.positions, input.positions.dim(1));
  const auto starts = input.cu_seqlens.values<int32_t>(), positions = input.positions.values<int32_t>();
  const int64_t tokens = input.positions.dim(1);
  if (starts.size() < 2 || starts.front() != 0 || starts.back() != tokens ||
      !std::is_sorted(starts.begin(), starts.end()))
    fail("cu_seqlens must rise from 0 to the {} tokens of the row", tokens);
  for (size_t d = 0; d + 1 < starts.size(); ++d) {
    const auto before = static_cast<size_t>(input.continued.empty() ? 0 : std::max(input.continued[d], 0));
    const bool continues = !input.continued.empty() && input.continued[d] >= 0;
    const int64_t first = continues ? starts[before + 1] - starts[before] : 0;
    for (int32_t row = starts[d]; row < starts[d + 1]; ++row) {
      const int64_t expected = first + row - starts[d], found = positions[static_cast<size_t>(row)];
      const bool begins = row == starts[d];
      if (begins ? found != first : found <= positions[static_cast<size_t>(row) - 1])
        fail(
            "positions and cu_seqlens disagree: token {} is at position {}, but at {} of document {}, which "
            "cu_seqlens has from token {} to {}; give both the same documents",
            row, found, expected, d, starts[d], starts[d + 1]);
    }
  }
}

void check_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab_size) fail("token id {} is outside the vocabulary [0, {})", id, vocab_size);
}

}  // namespace temper::layers
