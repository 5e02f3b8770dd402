#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// Rows of float32 or bfloat16, `stride` elements apart.
struct Block {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
};

// What starts at an element of a block, or of a tensor with compact rows.
inline Block block_at(const Block& block, int64_t row, int64_t column) {
  const int64_t offset = (row * block.stride + column) * size_of(block.dtype);
  return {static_cast<std::byte*>(block.data) + offset, block.dtype, block.stride};
}
inline Block block_of(const Tensor& tensor, int64_t row = 0, int64_t column = 0) {
  return block_at({tensor.raw(), tensor.dtype(), tensor.stride(0)}, row, column);
}

// to = from for rows x size elements, converting between the dtypes.
void copy_block(const Block& from, const Block& to, int64_t rows, int64_t size);

// to = codes of 8 bits (primitives/quantized.h) times the scale of their row, float32 or bfloat16: exact.
void copy_codes(const Block& codes, const float* scales, const Block& to, int64_t rows, int64_t size);

// A rectangle to compute in float32: where it lies, or in a copy that store() rounds back to bfloat16.
class WideBlock {
 public:
  // What is there counts (`filled`), or is overwritten.
  WideBlock(const Block& block, int64_t rows, int64_t size, bool filled);
  float* data() const { return static_cast<float*>(wide_.data); }
  int64_t stride() const { return wide_.stride; }
  void store() const;

 private:
  Block block_, wide_;
  int64_t rows_, size_;
  Tensor copy_;
};

// sums[i] += Σ_r rows[r][i], in float32, in the order of r.
void add_column_sums(const Block& rows, int64_t count, int64_t size, float* sums);

// y[r][o] = Σ_i x[r][i] weight[o][i] (+ bias[o]).
struct RowDots {
  Block x;  // float32
  int64_t rows = 1, size = 0;
  Block weight;
  Block y;
  const float* scales = nullptr;  // one an output: weight is codes of 8 bits (primitives/quantized.h)
  const Tensor* bias = nullptr;   // [outputs]; null or undefined: none
};
// For outputs [begin, end), on the calling thread. weight is read once for every four rows of x, so this is
// the product for few rows.
void dot_rows(const RowDots& dots, int64_t begin, int64_t end);

}  // namespace temper::backends
