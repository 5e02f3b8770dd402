#pragma once
#include "tensor/tensor.h"

namespace temper::backends {

// A matrix in memory. Its element (i, j) lies at data[i * stride + j], or at data[j * stride + i] if
// transposed.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // float32 or bfloat16
  int64_t stride = 0;
  bool transposed = false;

  Matrix block(int64_t row, int64_t column) const;  // the matrix that starts at (row, column)
};

inline Matrix transposed(Matrix matrix) {
  matrix.transposed = !matrix.transposed;
  return matrix;
}

// The rows of a tensor with compact rows, or of its transpose.
Matrix rows_of(const Tensor& tensor);
Matrix transpose_of(const Tensor& tensor);

// c [m, n] = a [m, k] b [k, n], plus c when accumulating; c is float32 with rows `stride` apart.
struct Tile {
  Matrix a, b;
  int64_t m = 0, n = 0, k = 0;
  float* c = nullptr;
  int64_t stride = 0;
  bool accumulate = false;
};

// How two bfloat16 operands are multiplied: widened to float32 first, or by the processor's own instructions.
enum class Bf16Path { kWiden, kNative };
Bf16Path bf16_path();  // the faster one here, decided once

// The dtype that a tile's products are taken in.
DType products_of(const Matrix& a, const Matrix& b, Bf16Path path);

// Whether products of our own are used for all tiles whose operands have this dtype (packed_tile.h): they add
// up each row in one order, whatever the other rows are. A library's products, which are used for bfloat16 on
// processors with AMX, do not guarantee this.
bool sums_alike(DType operands);

// Computes the tile on the calling thread alone: the result never depends on the number of threads. By
// AVX-512 or AVX2 of our own where the processor has them (packed_tile.h), by oneDNN otherwise: large
// bfloat16 tiles on processors with AMX, little ones are widened to float32 there.
void multiply(const Tile& tile, Bf16Path path = bf16_path());
void multiply_by_onednn(const Tile& tile, Bf16Path path = bf16_path());
// Bytes of workspace that they take for the tile, whose matrices need no memory for this.
int64_t workspace_of(const Tile& tile, Bf16Path path = bf16_path());
int64_t workspace_by_onednn(const Tile& tile, Bf16Path path = bf16_path());

}  // namespace temper::backends
