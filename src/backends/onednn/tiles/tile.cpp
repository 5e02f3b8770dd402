#include "backends/onednn/tiles/tile.h"

#include <algorithm>
#include <optional>

#include "backends/onednn/matmul.h"
#include "backends/onednn/tiles/blocks.h"
#include "backends/onednn/tiles/packed_tile.h"
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

// What one matmul computes of a tile: `depth` of its k. Operands that grow are compact copies.
struct NativePart {
  Tile rounded;  // copies have no memory yet
  int64_t depth;
  bool grows_c, grows_a, grows_b;

  NativePart(const Tile& tile, int64_t k) : rounded(tile), depth(std::min(kNativeDepth, tile.k - k)) {
    rounded.m = round_up(tile.m);
    rounded.k = round_up(depth);
    rounded.accumulate = tile.accumulate || k > 0;
    grows_c = rounded.m != tile.m;
    grows_b = rounded.k != depth;
    grows_a = grows_c || grows_b;
    if (grows_c) rounded.stride = tile.n;
    if (grows_a) rounded.a.stride = tile.a.transposed ? rounded.m : rounded.k;
    if (grows_b) rounded.b.stride = tile.b.transposed ? rounded.k : tile.n;
  }
  int64_t bytes_of_c() const { return grows_c ? rounded.m * rounded.n * size_of(DType::kF32) : 0; }
  int64_t bytes_of_operands() const {
    return ((grows_a ? rounded.m : 0) + (grows_b ? rounded.n : 0)) * rounded.k * size_of(DType::kBF16);
  }
};

// A copy of rows x columns with zeros around it, in new memory of the wanted size.
Matrix padded(const Matrix& matrix, int64_t rows, int64_t columns, const Shape& wanted, Tensor& scratch) {
  const int64_t lines = matrix.transposed ? columns : rows, size = matrix.transposed ? rows : columns;
  const Shape shape = matrix.transposed ? Shape{wanted[1], wanted[0]} : wanted;
  scratch = {};  // freed before the new one is allocated
  scratch = Tensor::zeros(shape, matrix.dtype, MemoryTag::kWorkspace);
  copy_block({const_cast<void*>(matrix.data), matrix.dtype, matrix.stride}, block_of(scratch), lines, size);
  return {scratch.raw(), matrix.dtype, shape[1], matrix.transposed};
}

void multiply_native(const Tile& tile) {
  Tensor c, a, b;
  if (const NativePart first(tile, 0); first.grows_c) {
    c = Tensor::empty({first.rounded.m, tile.n}, DType::kF32, MemoryTag::kWorkspace);
    if (tile.accumulate) copy_block({tile.c, DType::kF32, tile.stride}, block_of(c), tile.m, tile.n);
  }
  for (int64_t k = 0; k < tile.k; k += kNativeDepth) {
    const NativePart part(tile, k);
    Tile run = part.rounded;
    if (part.grows_c) run.c = c.data<float>();
    run.a = tile.a.block(0, k);
    run.b = tile.b.block(k, 0);
    if (part.grows_a) run.a = padded(run.a, tile.m, part.depth, {run.m, run.k}, a);
    if (part.grows_b) run.b = padded(run.b, part.depth, tile.n, {run.k, run.n}, b);
    matmul(run);
  }
  if (c.defined()) copy_block(block_of(c), {tile.c, DType::kF32, tile.stride}, tile.m, tile.n);
}

// The first part, the others and the last differ.
int64_t native_workspace(const Tile& tile) {
  int64_t most = 0;
  for (const int64_t k : {int64_t{0}, kNativeDepth, (tile.k - 1) / kNativeDepth * kNativeDepth}) {
    if (k >= tile.k) continue;
    const NativePart part(tile, k);
    most = std::max(most, part.bytes_of_c() + part.bytes_of_operands() + matmul_workspace(part.rounded));
  }
  return most;
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

bool sums_alike(DType operands) {
  const bool halves = operands == DType::kBF16 && bf16_path() == Bf16Path::kNative;
  return has_packed_tile(halves ? DType::kBF16 : DType::kF32);
}

DType products_of(const Matrix& a, const Matrix& b, Bf16Path path) {
  const bool halves = a.dtype == DType::kBF16 && b.dtype == DType::kBF16;
  return halves && path == Bf16Path::kNative ? DType::kBF16 : DType::kF32;
}

namespace {

// A call of the library takes microseconds, and its bookkeeping is shared by all threads: on an Intel Xeon
// the attention of short documents was slower on eight cores than on one. Below this many products, vectors
// of float32 are done sooner than its matrix instructions begin.
constexpr int64_t kLittle = 1 << 19;

// What vectors of our own multiply the tile in; none if the library is to.
std::optional<DType> own_products(const Tile& tile, Bf16Path path) {
  const DType products = products_of(tile.a, tile.b, path);
  if (has_packed_tile(products)) return products;
  const bool little = tile.m * tile.n * tile.k < kLittle;
  return little && has_packed_tile(DType::kF32) ? std::optional(DType::kF32) : std::nullopt;
}

}  // namespace

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
  if (const auto products = own_products(tile, path))
    packed_tile(tile, *products);
  else
    multiply_by_onednn(tile, path);
}

int64_t workspace_of(const Tile& tile, Bf16Path path) {
  if (tile.m == 0 || tile.n == 0 || tile.k == 0) return 0;
  const auto products = own_products(tile, path);
  return products ? packed_workspace(tile, *products) : workspace_by_onednn(tile, path);
}

int64_t workspace_by_onednn(const Tile& tile, Bf16Path path) {
  if (products_of(tile.a, tile.b, path) == DType::kBF16) return native_workspace(tile);
  const int64_t depth = std::min(tile.k, kDepth);
  return (floats_for(tile.a, tile.m, depth) + floats_for(tile.b, tile.n, depth)) * size_of(DType::kF32);
}

}  // namespace temper::backends
