#include "backends/onednn/tile.h"

#include <algorithm>

#include "backends/onednn/blocks.h"
#include "backends/onednn/matmul.h"
#include "backends/onednn/packed_tile.h"
#include "device/facts.h"

namespace temper::backends {
namespace {

// k is cut so that the widened blocks of a tile stay in the cache.
constexpr int64_t kDepth = 512;

// Lines of a power of two fall into the same cache sets when gemm walks across them, as it does along k.
constexpr int64_t kGap = 16;

// A float32 copy of rows x columns in `scratch`; float32 matrices stay where they are.
Matrix widened(const Matrix& matrix, int64_t rows, int64_t columns, int64_t gap, const Tensor& scratch) {
  if (matrix.dtype == DType::kF32) return matrix;
  const int64_t lines = matrix.transposed ? columns : rows, size = matrix.transposed ? rows : columns;
  const Block copy{scratch.raw(), DType::kF32, size + gap};
  copy_block({const_cast<void*>(matrix.data), matrix.dtype, matrix.stride}, copy, lines, size);
  return {copy.data, DType::kF32, copy.stride, matrix.transposed};
}

int64_t floats_for(const Matrix& matrix, int64_t size, int64_t depth) {
  return matrix.dtype == DType::kF32 ? 0 : (size + kGap) * depth;
}

Tensor scratch_for(const Matrix& matrix, int64_t size, int64_t depth) {
  const int64_t floats = floats_for(matrix, size, depth);
  return floats == 0 ? Tensor() : Tensor::empty({floats}, DType::kF32, MemoryTag::kWorkspace);
}

void multiply_widened(const Tile& tile) {
  const int64_t depth = std::min(tile.k, kDepth);
  const Tensor scratch_a = scratch_for(tile.a, tile.m, depth), scratch_b = scratch_for(tile.b, tile.n, depth);
  const int64_t gap_a = tile.a.transposed ? kGap : 0, gap_b = tile.b.transposed ? 0 : kGap;
  Tile part = tile;
  for (int64_t k = 0; k < tile.k; k += depth, part.accumulate = true) {
    part.k = std::min(depth, tile.k - k);
    part.a = widened(tile.a.block(0, k), tile.m, part.k, gap_a, scratch_a);
    part.b = widened(tile.b.block(k, 0), part.k, tile.n, gap_b, scratch_b);
    gemm(part);
  }
}

// Rows and depth follow the batch; rounded up, they make few shapes to compile.
constexpr int64_t kRound = 32, kNativeDepth = 1024;
int64_t round_up(int64_t size) { return (size + kRound - 1) / kRound * kRound; }

// A copy with zeros around it, kept alive by `scratch`; the matrix itself where it has the wanted size.
Matrix padded(const Matrix& matrix, int64_t rows, int64_t columns, int64_t new_rows, int64_t new_columns,
              Tensor& scratch) {
  if (rows == new_rows && columns == new_columns) return matrix;
  const int64_t lines = matrix.transposed ? columns : rows, size = matrix.transposed ? rows : columns;
  const Shape shape = matrix.transposed ? Shape{new_columns, new_rows} : Shape{new_rows, new_columns};
  scratch = Tensor::zeros(shape, matrix.dtype, MemoryTag::kWorkspace);
  copy_block({const_cast<void*>(matrix.data), matrix.dtype, matrix.stride}, block_of(scratch), lines, size);
  return {scratch.raw(), matrix.dtype, shape[1], matrix.transposed};
}

void multiply_native(const Tile& tile) {
  Tile part = tile;
  part.m = round_up(tile.m);
  Tensor c, a, b;
  if (part.m != tile.m) {
    c = Tensor::empty({part.m, tile.n}, DType::kF32, MemoryTag::kWorkspace);
    if (tile.accumulate) copy_block({tile.c, DType::kF32, tile.stride}, block_of(c), tile.m, tile.n);
    part.c = c.data<float>();
    part.stride = tile.n;
  }
  for (int64_t k = 0; k < tile.k; k += kNativeDepth, part.accumulate = true) {
    const int64_t depth = std::min(kNativeDepth, tile.k - k);
    part.k = round_up(depth);
    part.a = padded(tile.a.block(0, k), tile.m, depth, part.m, part.k, a);
    part.b = padded(tile.b.block(k, 0), depth, tile.n, part.k, tile.n, b);
    matmul(part);
  }
  if (c.defined()) copy_block(block_of(c), {tile.c, DType::kF32, tile.stride}, tile.m, tile.n);
}

}  // namespace

Matrix Matrix::block(int64_t row, int64_t column) const {
  const int64_t offset = transposed ? column * stride + row : row * stride + column;
  return {static_cast<const std::byte*>(data) + offset * size_of(dtype), dtype, stride, transposed};
}

// The stride of a single row may be anything.
Matrix rows_of(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype(), std::max(tensor.stride(0), tensor.dim(1)), false};
}
Matrix transpose_of(const Tensor& tensor) {
  Matrix matrix = rows_of(tensor);
  matrix.transposed = true;
  return matrix;
}

Bf16Path bf16_path() {
  static const Bf16Path path = detect_cpu().native_bf16 ? Bf16Path::kNative : Bf16Path::kWiden;
  return path;
}

DType products_of(const Matrix& a, const Matrix& b, Bf16Path path) {
  const bool halves = a.dtype == DType::kBF16 && b.dtype == DType::kBF16;
  return halves && path == Bf16Path::kNative ? DType::kBF16 : DType::kF32;
}

void multiply_by_onednn(const Tile& tile, Bf16Path path) {
  if (tile.a.dtype == DType::kF32 && tile.b.dtype == DType::kF32)
    gemm(tile);
  else if (products_of(tile.a, tile.b, path) == DType::kBF16)
    multiply_native(tile);
  else
    multiply_widened(tile);
}

void multiply(const Tile& tile, Bf16Path path) {
  if (tile.m == 0 || tile.n == 0) return;
  if (tile.k == 0) {
    for (int64_t row = 0; row < tile.m && !tile.accumulate; ++row)
      std::fill_n(tile.c + row * tile.stride, tile.n, 0.0f);
    return;
  }
  const DType products = products_of(tile.a, tile.b, path);
  if (has_packed_tile(products))
    packed_tile(tile, products);
  else
    multiply_by_onednn(tile, path);
}

int64_t workspace_of(const Tile& tile, Bf16Path path) {
  const DType products = products_of(tile.a, tile.b, path);
  if (has_packed_tile(products)) return packed_workspace(tile, products);
  if (products == DType::kBF16) {
    const int64_t rows = round_up(tile.m), depth = std::min(round_up(tile.k), kNativeDepth);
    const int64_t c = rows == tile.m ? 0 : rows * tile.n * size_of(DType::kF32);
    const bool pads = rows != tile.m || tile.k % kRound != 0;
    return c + (pads ? (rows + tile.n) * depth * size_of(DType::kBF16) : 0);
  }
  const int64_t depth = std::min(tile.k, kDepth);
  return (floats_for(tile.a, tile.m, depth) + floats_for(tile.b, tile.n, depth)) * size_of(DType::kF32);
}

}  // namespace temper::backends
