// Products of experts' rows from compute capability 8.0 on: a block computes a square of 64, its four warps a quarter
// each, from strips in shared memory. 16-bit operands are multiplied by tensor cores, others one by one; a thread has
// the same sums in both.
#include "backends/cuda/experts/expert_products.h"

#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

constexpr int kTile = 64, kDepth = 32, kBlock = 128;

struct RowTile {
  int expert, row, rows, unused;  // rows: 0 behind the last tile
};

// A thread has an expert.
__global__ void __launch_bounds__(kMostExperts)
    write_row_tiles(const int* starts, int experts, RowTile* tiles, int most) {
  __shared__ int counts[kMostExperts];
  const int expert = static_cast<int>(threadIdx.x);
  const int begin = expert < experts ? starts[expert] : 0, end = expert < experts ? starts[expert + 1] : 0;
  const int own = (end - begin + kTile - 1) / kTile;
  counts[expert] = own;
  __syncthreads();
  int before = 0;
  for (int e = 0; e < expert; ++e) before += counts[e];
  for (int i = 0; i < own; ++i) {
    const int row = begin + i * kTile;
    tiles[before + i] = {expert, row, min(kTile, end - row), 0};
  }
  if (expert == kMostExperts - 1)
    for (int i = before + own; i < most; ++i) tiles[i] = {};
}

// Rows of a matrix, one strip of which is copied at a time.
template <class T>
struct Rows {
  const T* memory;
  int64_t columns, stride;
  const int* tokens;  // of each row, or null: rows are as they are
  bool whole;         // can be loaded by chunks of 16 bytes

  __device__ const T* row(int64_t index) const {
    return memory + (tokens == nullptr ? index : tokens[index]) * stride;
  }
};

// [kRows, kColumns] of a matrix; behind `rows` and the last column are zeros.
template <class T, int kRows, int kColumns>
struct Strip {
  static constexpr int kStride = kColumns + kLanes<T>;
  T values[kRows][kStride];

  __device__ void load(const Rows<T>& from, int64_t first_row, int rows, int64_t first_column) {
    constexpr int kChunks = kColumns / kLanes<T>;
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kBlock; ++i) {
      const int at = i * kBlock + static_cast<int>(threadIdx.x), row = at / kChunks,
                column = at % kChunks * kLanes<T>;
      const int64_t left = from.columns - first_column - column;
      Pack<T, kLanes<T>> chunk{};
      if (row < rows && left > 0) {
        const T* const source = from.row(first_row + row) + first_column + column;
        if (from.whole)
          chunk = load_pack<T, kLanes<T>>(source);
        else
          for (int k = 0; k < kLanes<T>; ++k)
            if (k < left) chunk.values[k] = source[k];
      }
      store_pack(&values[row][column], chunk);
    }
  }
};

// An operand's strip: kTile of the product's rows or columns, kDepth along the sum.
template <class T, bool kDepthIsRows>
struct Operand {
  Strip<T, kDepthIsRows ? kDepth : kTile, kDepthIsRows ? kTile : kDepth> strip;

  __device__ T at(int row, int depth) const {
    return kDepthIsRows ? strip.values[depth][row] : strip.values[row][depth];
  }
  __device__ uint32_t pair(int row, int depth) const {  // of neighbours along the sum
    if constexpr (!kDepthIsRows) return *reinterpret_cast<const uint32_t*>(&strip.values[row][depth]);
    uint16_t bits[2];
    *reinterpret_cast<T*>(bits) = strip.values[depth][row];
    *reinterpret_cast<T*>(bits + 1) = strip.values[depth + 1][row];
    return bits[0] | static_cast<uint32_t>(bits[1]) << 16;
  }
};

// A warp's [32, 32] of a square: of each [16, 8] a thread has (row, column), (row, column + 1) and both 8 rows below.
struct Sums {
  float values[2][4][4] = {};

  __device__ static int warp_row() { return static_cast<int>(threadIdx.x) / 64 * 32; }
  __device__ static int warp_column() { return static_cast<int>(threadIdx.x) / 32 % 2 * 32; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 4 * 2; }

  template <class A, class B>
  __device__ void add(const A& a, const B& b, float) {
    for (int k = 0; k < kDepth; ++k) {
      float left[2][2], right[4][2];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) left[m][h] = a.at(warp_row() + 16 * m + 8 * h + row(), k);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) right[n][h] = b.at(warp_column() + 8 * n + column() + h, k);
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) values[m][n][i] += left[m][i / 2] * right[n][i % 2];
    }
  }
  template <class A, class B, class T>
  __device__ void add(const A& a, const B& b, T) {
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t left[2][4], right[4][2];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          left[m][i] = a.pair(warp_row() + 16 * m + row() + i % 2 * 8, k + column() + i / 2 * 8);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) right[n][i] = b.pair(warp_column() + 8 * n + row(), k + column() + i * 8);
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) multiply(values[m][n], left[m], right[n], T{});
    }
  }
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __nv_bfloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  __device__ static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  // f(row, column, sum) of the square.
  template <class F>
  __device__ void for_each(F f) const {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          f(warp_row() + 16 * m + row() + i / 2 * 8, warp_column() + 8 * n + column() + i % 2, values[m][n][i]);
  }
};

// rows matrixᵀ, or rows matrix. `high`: rows of an expert's matrix.
template <class T>
struct Factors {
  Rows<T> rows, matrices;
  int64_t high;
};
template <class T>
struct Products {
  Factors<T> one, update;  // whose sum is d
};
template <class T, bool kTranspose>
__global__ void __launch_bounds__(kBlock)
    multiply(const RowTile* tiles, const __grid_constant__ Products<T> products, T* d, int64_t columns) {
  __shared__ Operand<T, false> a;
  __shared__ Operand<T, !kTranspose> b;
  const RowTile tile = tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const int64_t first = int64_t{blockIdx.y} * kTile;
  Sums sums;
  const auto rows_left = [](int64_t left, int most) {
    return static_cast<int>(max(int64_t{0}, min(left, int64_t{most})));
  };
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const Factors<T>& f = part == 0 ? products.one : products.update;
    const int64_t depth = f.rows.columns, matrix = tile.expert * f.high;
    for (int64_t k = 0; k < depth; k += kDepth) {
      a.strip.load(f.rows, tile.row, tile.rows, k);
      if constexpr (kTranspose)
        b.strip.load(f.matrices, matrix + first, rows_left(f.high - first, kTile), k);
      else
        b.strip.load(f.matrices, matrix + k, rows_left(f.high - k, kDepth), first);
      __syncthreads();
      sums.add(a, b, T{});
      __syncthreads();
    }
  }
  sums.for_each([&](int row, int column, float sum) {
    if (row < tile.rows && first + column < columns)
      d[(tile.row + row) * columns + first + column] = narrow<T>(sum);
  });
}

// target (+)= scale · aᵀ b over an expert's rows.
template <class T, class Target>
__global__ void __launch_bounds__(kBlock)
    multiply_transposed(const int* starts, Rows<T> left, Rows<T> right, Target* target, bool accumulate,
                        float scale) {
  __shared__ Operand<T, true> a, b;
  const int64_t expert = blockIdx.x, row = int64_t{blockIdx.y} * kTile, column = int64_t{blockIdx.z} * kTile;
  const int end = starts[expert + 1];
  Sums sums;
  for (int first = starts[expert]; first < end; first += kDepth) {
    const int rows = min(end - first, kDepth);
    a.strip.load(left, first, rows, row);
    b.strip.load(right, first, rows, column);
    __syncthreads();
    sums.add(a, b, T{});
    __syncthreads();
  }
  sums.for_each([&](int r, int c, float sum) {
    if (row + r >= left.columns || column + c >= right.columns) return;
    Target& to = target[(expert * left.columns + row + r) * right.columns + column + c];
    to = narrow<Target>(accumulate ? widen(to) + scale * sum : scale * sum);
  });
}

template <class T>
Rows<T> rows_of(const Tensor& matrix, const int* tokens = nullptr) {
  return {static_cast<const T*>(matrix.raw()), matrix.dim(1), matrix.dim(1), tokens,
          is_aligned(matrix) && matrix.dim(1) % kLanes<T> == 0};
}
template <class T>
Rows<T> columns_of(const ExpertPlan& plan, const RowColumns& part) {
  Rows<T> rows = rows_of<T>(part.rows, part.gathers ? plan.tokens() : nullptr);
  rows.memory += part.column;
  rows.columns = part.columns;
  rows.whole = rows.whole && part.column % kLanes<T> == 0 && part.columns % kLanes<T> == 0;
  return rows;
}

unsigned tiles_of(int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); }

}  // namespace

Tensor row_tiles(const ExpertPlan& plan) {
  const Device device = plan.memory.device();
  const int64_t most = plan.rows / kTile + std::min(plan.experts, plan.rows);
  const Tensor tiles = Tensor::empty({most, int64_t{sizeof(RowTile) / sizeof(int)}}, DType::kI32,
                                     MemoryTag::kWorkspace, device);
  if (most == 0 || only_counts(device)) return tiles;
  write_row_tiles<<<1, kMostExperts, 0, device::stream(device)>>>(plan.starts(), static_cast<int>(plan.experts),
                                                                 static_cast<RowTile*>(tiles.raw()),
                                                                 static_cast<int>(most));
  device::check_launch("row_tiles");
  return tiles;
}

void multiply_rows(const ExpertPlan& plan, const Tensor& tiles, const GivenRows& rows, const Tensor& matrices,
                   bool transpose, const Tensor& d, const ExpertUpdate& update) {
  if (d.numel() == 0 || only_counts(d.device())) return;
  const int64_t columns = d.dim(1);
  visit_device_float(d.dtype(), [&]<class T>() {
    auto* const kernel = transpose ? multiply<T, true> : multiply<T, false>;
    kernel<<<dim3(static_cast<unsigned>(tiles.dim(0)), tiles_of(columns)), kBlock, 0, device::stream(d.device())>>>(
        static_cast<const RowTile*>(tiles.raw()),
        Products<T>{{rows_of<T>(rows.rows, rows.gathers ? plan.tokens() : nullptr), rows_of<T>(matrices),
                     matrices.dim(0) / plan.experts},
                    update.low.defined() ? Factors<T>{rows_of<T>(update.low), rows_of<T>(update.matrices),
                                                      update.matrices.dim(0) / plan.experts}
                                         : Factors<T>{}},
        static_cast<T*>(d.raw()), columns);
  });
  device::check_launch("expert products");
}

void add_expert_gradient(const ExpertPlan& plan, const RowColumns& a, const RowColumns& b, const GradTarget& target,
                         float scale) {
  if (!target.wanted() || only_counts(target.buffer.device())) return;
  const Device device = target.buffer.device();
  const dim3 blocks(static_cast<unsigned>(plan.experts), tiles_of(a.columns), tiles_of(b.columns));
  visit_device_float(a.rows.dtype(), [&]<class T>() {
    visit_wide_or_brain(target.buffer.dtype(), [&]<class Target>() {
      multiply_transposed<T, Target><<<blocks, kBlock, 0, device::stream(device)>>>(
          plan.starts(), columns_of<T>(plan, a), columns_of<T>(plan, b), static_cast<Target*>(target.buffer.raw()),
          target.accumulate, scale);
    });
  });
  device::check_launch("expert gradients");
}

}  // namespace temper::backends
