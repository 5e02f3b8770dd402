#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// Rows of float32 or bfloat16, `stride` elements apart.
struct Block {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
};

// The rows from `row` on of a tensor with compact rows.
inline Block block_of(const Tensor& tensor, int64_t row = 0) {
  const int64_t stride = tensor.stride(0);
  return {static_cast<std::byte*>(tensor.raw()) + row * stride * size_of(tensor.dtype()), tensor.dtype(),
          stride};
}

// The block that starts at an element.
inline Block block_at(const Block& block, int64_t row, int64_t column) {
  const int64_t offset = (row * block.stride + column) * size_of(block.dtype);
  return {static_cast<std::byte*>(block.data) + offset, block.dtype, block.stride};
}

// to = from for rows x size elements, converting between the dtypes.
void copy_block(const Block& from, const Block& to, int64_t rows, int64_t size);

// sums[i] += Σ_r rows[r][i], in float32, in the order of r.
void add_column_sums(const Block& rows, int64_t count, int64_t size, float* sums);

// y[r][o] = Σ_i x[r][i] weight[o][i] (+ bias[o]) for outputs [begin, end), on the calling thread. x is
// float32; weight is read once for every four rows of x, so this is the product for few rows.
void dot_rows(const Block& x, int64_t rows, const Block& weight, int64_t size, const Tensor& bias,
              const Block& y, int64_t begin, int64_t end);

}  // namespace temper::backends
