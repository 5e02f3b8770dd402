#pragma once
#include <algorithm>
#include <vector>

#include "backends/simd/conv_rows.h"
#include "ops/causal_conv1d/causal_conv1d.h"

// How a causal convolution is cut, and what a piece of it reads.
namespace temper::backends {

// What is worked on at a time: its slopes stay in the near caches between the gradients of weights and
// inputs.
struct ConvTile {
  int64_t tokens, channels;
};
inline constexpr ConvTile kConvTiles[] = {{64, 1024}, {32, 512}, {16, 128}};  // by tiling

// What a tile of the backward pass, the larger one, keeps: slopes, also those behind the tile, gradients of
// weights, and two rows for the ends of documents; the weights are read once more for each token.
inline int64_t conv_tile_floats(const ConvTile& tile, int64_t channels, int64_t width) {
  return std::min(tile.channels, channels) * (tile.tokens + width - 1 + width + 2);
}
inline std::byte* element(const Tensor& rows, int64_t row, int64_t column) {
  return static_cast<std::byte*>(rows.raw()) + (row * rows.stride(0) + column) * size_of(rows.dtype());
}

// Some channels of an op, and where their inputs are: in a document from -(width - 1), in what is before it,
// to its length.
class ConvColumns {
 public:
  ConvColumns(const ops::CausalConv1d& op, const Tensor& weights, const std::vector<int64_t>& documents,
              int64_t first, int64_t count)
      : op_(op),
        weights_(weights.data<float>() + first),
        documents_(documents),
        first_(first),
        count_(count) {}

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  int64_t document_of(int64_t token) const { return documents_[static_cast<size_t>(token)]; }
  const float* weights(int64_t j) const { return weights_ + j * op_.channels(); }

  const void* at(int64_t document, int64_t index) const {
    if (index >= 0) return element(op_.x, op_.documents.start(document) + index, first_);
    const int64_t before = op_.documents.continues(document);
    if (before >= 0) return at(before, op_.documents.length(before) + index);
    const int64_t kept = op_.width() - 1;
    if (!op_.initial.defined() || index < -kept) return nullptr;
    return element(op_.initial.reshape({op_.documents.count() * kept, op_.channels()}),
                   document * kept + kept + index, first_);
  }
  void* of(const Tensor& rows, int64_t row) const { return element(rows, row, first_); }
  // Without inputs.
  ConvRow row(DType dtype) const { return {{}, op_.width(), count_, op_.channels(), weights_, dtype}; }
  ConvRow row(int64_t token) const {
    ConvRow row = this->row(op_.x.dtype());
    const int64_t document = document_of(token), index = token - op_.documents.start(document);
    for (int64_t j = 0; j < row.width; ++j) row.inputs[j] = at(document, index - (row.width - 1) + j);
    return row;
  }

 private:
  const ops::CausalConv1d& op_;
  const float* weights_;
  const std::vector<int64_t>& documents_;
  int64_t first_, count_;
};

// The document of each token.
inline std::vector<int64_t> documents_of_tokens(const ops::Documents& documents) {
  std::vector<int64_t> all;
  for (int64_t d = 0; d < documents.count(); ++d)
    all.insert(all.end(), static_cast<size_t>(documents.length(d)), d);
  return all;
}

// Calls f(columns, first token, last) for each tile of tokens [begin, end).
template <class F>
void for_conv_tiles(const ops::CausalConv1d& op, const Tensor& weights, const std::vector<int64_t>& documents,
                    int64_t begin, int64_t end, const F& f) {
  const ConvTile tile = kConvTiles[op.tiling];
  for (int64_t c = 0; c < op.channels(); c += tile.channels) {
    const ConvColumns columns(op, weights, documents, c, std::min(tile.channels, op.channels() - c));
    for (int64_t t = begin; t < end; t += tile.tokens) f(columns, t, std::min(t + tile.tokens, end));
  }
}

}  // namespace temper::backends
