// Both kernels read much and compute little: a block of four warps has few sums and walks along its rows, or along the
// depth, in steps of 64, which are copied three ahead.
#include "backends/hopper/narrow_experts.h"

#include "backends/gpu/async_copies.h"
#include "backends/gpu/device_code.h"
#include "backends/hopper/wgmma.h"

namespace temper::backends::hopper {
namespace {

constexpr int kBlock = 128, kRows = 64, kDeep = 64, kAhead = 3;
constexpr int kBoxBytes = 64 * 128;  // 64 rows of 64 numbers, swizzled (chunk_of)
constexpr int kMostColumns = 64;     // of low that a block has

// The number of chunks of 16 bytes that a thread copies of a box of kHigh rows of kChunks chunks.
template <int kHigh, int kChunks>
constexpr int kEach = kHigh * kChunks / kBlock;

// A matrix of which boxes are copied; what is outside becomes zeros.
struct Source {
  const __nv_bfloat16* memory;
  int64_t stride;
  const int* tokens;  // of each row, or null

  // Where the rows [first, first + rows) are of which this thread copies chunks, -1 beyond the last.
  template <int kHigh, int kChunks = 8>
  __device__ void find(int first, int rows, int (&found)[kEach<kHigh, kChunks>]) const {
    static_assert(kHigh * kChunks % kBlock == 0);
#pragma unroll
    for (int i = 0; i < kEach<kHigh, kChunks>; ++i) {
      const int in_box = static_cast<int>(threadIdx.x) / kChunks + i * (kBlock / kChunks);
      found[i] = in_box >= rows ? -1 : tokens == nullptr ? first + in_box : tokens[first + in_box];
    }
  }
  // kBoxes of 64 columns each.
  template <int kHigh, int kChunks = 8, int kBoxes = 1>
  __device__ void send(uint32_t to, const int (&found)[kEach<kHigh, kChunks>], int column, int columns) const {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks, in_box = static_cast<int>(threadIdx.x) / kChunks;
#pragma unroll
    for (int i = 0; i < kEach<kHigh, kChunks>; ++i)
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const int at = column + 64 * box + 8 * chunk;
        const bool inside = found[i] >= 0 && at < columns;
        load_chunk(chunk_of(to + box * kBoxBytes, in_box + i * (kBlock / kChunks), chunk),
                   memory + (inside ? found[i] * stride + at : 0), inside ? 16 : 0);
      }
  }
  template <int kHigh, int kChunks = 8>
  __device__ void send(uint32_t to, int first, int rows, int column, int columns) const {
    int found[kEach<kHigh, kChunks>];
    find<kHigh, kChunks>(first, rows, found);
    send<kHigh, kChunks>(to, found, column, columns);
  }
};

__device__ void commit_chunks() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last kLeft groups of this thread have arrived.
template <int kLeft>
__device__ void wait_chunks() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
__device__ uint32_t first_group(const void* memory) {
  return (shared_address(memory) + kGroupBytes - 1) / kGroupBytes * kGroupBytes;
}

// Calls send(stage's memory, step), and use(the same) when it is there, for all steps.
template <class Send, class Use>
__device__ __forceinline__ void pipeline(uint32_t memory, int stage_bytes, int steps, const Send& send, const Use& use) {
  const auto begin = [&](int step) {
    if (step < steps) send(memory + step % kAhead * stage_bytes, step);
    commit_chunks();
  };
  for (int step = 0; step < kAhead - 1; ++step) begin(step);
  for (int step = 0; step < steps; ++step) {
    wait_chunks<kAhead - 2>();
    __syncthreads();  // all have their chunks, and have used the stage that is filled next
    begin(step + kAhead - 1);
    use(memory + step % kAhead * stage_bytes, step);
  }
}

struct ProductArguments {
  Source rows, matrices;
  const int* starts;
  __nv_bfloat16* low;
  int experts, depth, high, columns;  // of a matrix `high` rows; of low
};

// The rows of the block: its expert's, [row, row + rows).
struct Tile {
  int expert, row, rows;
};
// A warp finds it: an expert has whole tiles, and blocks beyond the last have none.
__device__ Tile find_tile(const int* starts, int experts, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane, begin = e < experts ? starts[e] : 0, end = e < experts ? starts[e + 1] : 0;
    const int own = (end - begin + kRows - 1) / kRows;
    int upto = own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned later = __ballot_sync(0xffffffffu, before + upto > index);
    if (later != 0) {
      const int from = __ffs(static_cast<int>(later)) - 1;
      const int row = __shfl_sync(0xffffffffu, begin + (index - before - (upto - own)) * kRows, from),
                last = __shfl_sync(0xffffffffu, end, from);
      return {first + from, row, min(kRows, last - row)};
    }
    before += __shfl_sync(0xffffffffu, upto, 31);
  }
  return {0, 0, 0};
}

// [64, kColumns] of low; a warp has 16 of the rows.
template <int kColumns, bool kTranspose>
__global__ void __launch_bounds__(kBlock) multiply_narrow(const ProductArguments g) {
  extern __shared__ char memory[];
  const Tile tile = find_tile(g.starts, g.experts, static_cast<int>(blockIdx.x));
  if (tile.rows == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.y) * kMostColumns, matrix = tile.expert * g.high;
  float sums[kColumns / 8][4] = {};
  int own[kEach<kRows, 8>];
  g.rows.find<kRows>(tile.row, tile.rows, own);
  pipeline(
      first_group(memory), 2 * kBoxBytes, (g.depth + kDeep - 1) / kDeep,
      [&](uint32_t to, int step) {
        g.rows.send<kRows>(to, own, step * kDeep, g.depth);
        if constexpr (kTranspose)
          g.matrices.send<kColumns>(to + kBoxBytes, matrix + first, g.high - first, step * kDeep, g.depth);
        else
          g.matrices.send<kDeep, kColumns / 8>(to + kBoxBytes, matrix + step * kDeep, g.high - step * kDeep, first,
                                               g.columns);
      },
      [&](uint32_t at, int) {
#pragma unroll
        for (int k = 0; k < kDeep / 16; ++k) {
          uint32_t a[4];
          load_tiles(chunk_of(at, 16 * warp + lane % 16, 2 * k + lane / 16), a);
#pragma unroll
          for (int n = 0; n < kColumns / 16; ++n) {
            uint32_t b[4];  // two pairs of tiles: 16 columns
            if constexpr (kTranspose)
              load_tiles(chunk_of(at + kBoxBytes, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2), b);
            else
              load_tiles_transposed(chunk_of(at + kBoxBytes, 16 * k + lane % 16, 2 * n + lane / 16), b);
            add_small_product(sums[2 * n], a, b);
            add_small_product(sums[2 * n + 1], a, b + 2);
          }
        }
      });
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = 16 * warp + lane / 4 + 8 * below, column = first + 8 * n + lane % 4 * 2;
      if (row < tile.rows && column < g.columns)
        *reinterpret_cast<uint32_t*>(g.low + int64_t{tile.row + row} * g.columns + column) =
            pack(sums[n][2 * below], sums[n][2 * below + 1]);
    }
}

struct GradientArguments {
  Source wide, low;
  const int* starts;
  void* target;
  int wide_begin, wide_end, low_begin, low_end;  // columns of either's rows that are wanted
  int wide_first, low_first;                     // multiples of 8 at or before those
  int wide_columns, low_columns;                 // of the rows in memory
  float scale;
  bool transposed, bfloat16, accumulate;
};

constexpr int kWide = 128;  // columns of `wide` that a block has, a warp 32 of them

template <class T>
__device__ void put(const GradientArguments& g, int64_t at, float sum) {
  T& to = static_cast<T*>(g.target)[at];
  to = narrow<T>(g.accumulate ? widen(to) + sum : sum);
}

template <int kColumns>
__global__ void __launch_bounds__(kBlock) add_narrow_gradient(const GradientArguments g) {
  extern __shared__ char memory[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int expert = static_cast<int>(blockIdx.y), begin = g.starts[expert], end = g.starts[expert + 1];
  const int wide = g.wide_first + static_cast<int>(blockIdx.x) * kWide,
            low = g.low_first + static_cast<int>(blockIdx.z) * kMostColumns;
  float sums[2][kColumns / 8][4] = {};
  int next[kEach<kRows, 8>];  // found one step before they are copied
  g.wide.find<kRows>(begin, end - begin, next);
  pipeline(
      first_group(memory), 3 * kBoxBytes, (end - begin + kRows - 1) / kRows,
      [&](uint32_t to, int step) {
        const int row = begin + step * kRows;
        g.wide.send<kRows, 8, 2>(to, next, wide, g.wide_columns);
        g.wide.find<kRows>(row + kRows, end - row - kRows, next);
        g.low.send<kRows, kColumns / 8>(to + 2 * kBoxBytes, row, end - row, low, g.low_columns);
      },
      [&](uint32_t at, int) {
        const uint32_t box = at + warp / 2 * kBoxBytes;
#pragma unroll
        for (int k = 0; k < kRows / 16; ++k) {
          uint32_t a[2][4];
#pragma unroll
          for (int m = 0; m < 2; ++m)
            load_tiles_transposed(
                chunk_of(box, 16 * k + lane / 16 * 8 + lane % 8, warp % 2 * 4 + 2 * m + lane / 8 % 2), a[m]);
#pragma unroll
          for (int n = 0; n < kColumns / 16; ++n) {
            uint32_t b[4];
            load_tiles_transposed(chunk_of(at + 2 * kBoxBytes, 16 * k + lane % 16, 2 * n + lane / 16), b);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
              add_small_product(sums[m][2 * n], a[m], b);
              add_small_product(sums[m][2 * n + 1], a[m], b + 2);
            }
          }
        }
      });
  const int64_t high = g.wide_end - g.wide_begin, across = g.low_end - g.low_begin;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = wide + 32 * warp + 16 * m + lane / 4 + i / 2 * 8,
                  column = low + 8 * n + lane % 4 * 2 + i % 2;
        if (row < g.wide_begin || row >= g.wide_end || column < g.low_begin || column >= g.low_end) continue;
        const int64_t r = row - g.wide_begin, c = column - g.low_begin;
        const int64_t at = g.transposed ? (expert * across + c) * high + r : (expert * high + r) * across + c;
        const float sum = g.scale * sums[m][n][i];
        g.bfloat16 ? put<__nv_bfloat16>(g, at, sum) : put<float>(g, at, sum);
      }
}

Source source_of(const Tensor& matrix, const int* tokens) {
  return {static_cast<const __nv_bfloat16*>(matrix.raw()), matrix.dim(1), tokens};
}
unsigned blocks_of(int64_t size, int64_t each) { return static_cast<unsigned>((size + each - 1) / each); }

// Calls f.template operator()<how many columns of low a block has>().
template <class F>
void visit_columns_of_low(int64_t columns, F&& f) {
  if (columns <= 16) return f.template operator()<16>();
  if (columns <= 32) return f.template operator()<32>();
  f.template operator()<kMostColumns>();
}

}  // namespace

void narrow_product(const ExpertPlan& plan, const Tensor& rows, bool gathers, const Tensor& matrices, bool transpose,
                    const Tensor& low) {
  if (low.numel() == 0 || only_counts(low.device())) return;
  ProductArguments g{};
  g.rows = source_of(rows, gathers ? plan.tokens() : nullptr);
  g.matrices = source_of(matrices, nullptr);
  g.starts = plan.starts();
  g.low = static_cast<__nv_bfloat16*>(low.raw());
  g.experts = static_cast<int>(plan.experts);
  g.depth = static_cast<int>(rows.dim(1));
  g.high = static_cast<int>(matrices.dim(0) / plan.experts);
  g.columns = static_cast<int>(low.dim(1));
  const dim3 blocks(blocks_of(plan.rows, kRows) + static_cast<unsigned>(std::min(plan.experts, plan.rows)),
                    blocks_of(g.columns, kMostColumns));
  constexpr int kBytes = kAhead * 2 * kBoxBytes + static_cast<int>(kGroupBytes);
  visit_columns_of_low(g.columns, [&]<int kColumns>() {
    auto* const kernel = transpose ? multiply_narrow<kColumns, true> : multiply_narrow<kColumns, false>;
    allow_scratch(kernel, kBytes);
    kernel<<<blocks, kBlock, kBytes, device::stream(low.device())>>>(g);
  });
  device::check_launch("narrow_product");
}

void narrow_gradient(const ExpertPlan& plan, const RowColumns& wide, const RowColumns& low, bool transposed,
                     float scale, const GradTarget& target) {
  if (!target.wanted() || target.buffer.numel() == 0 || only_counts(target.buffer.device())) return;
  const auto tokens = [&](const RowColumns& rows) { return rows.gathers ? plan.tokens() : nullptr; };
  const auto chunk = [](int64_t column) { return static_cast<int>(column / 8 * 8); };
  GradientArguments g{};
  g.wide = source_of(wide.rows, tokens(wide));
  g.low = source_of(low.rows, tokens(low));
  g.starts = plan.starts();
  g.target = target.buffer.raw();
  g.wide_begin = static_cast<int>(wide.column);
  g.wide_end = static_cast<int>(wide.column + wide.columns);
  g.low_begin = static_cast<int>(low.column);
  g.low_end = static_cast<int>(low.column + low.columns);
  g.wide_first = chunk(wide.column);
  g.low_first = chunk(low.column);
  g.wide_columns = static_cast<int>(wide.rows.dim(1));
  g.low_columns = static_cast<int>(low.rows.dim(1));
  g.scale = scale;
  g.transposed = transposed;
  g.bfloat16 = target.buffer.dtype() == DType::kBF16;
  g.accumulate = target.accumulate;
  const int64_t columns = g.low_end - g.low_first;
  const dim3 blocks(blocks_of(g.wide_end - g.wide_first, kWide), static_cast<unsigned>(plan.experts),
                    blocks_of(columns, kMostColumns));
  constexpr int kBytes = kAhead * 3 * kBoxBytes + static_cast<int>(kGroupBytes);
  visit_columns_of_low(columns, [&]<int kColumns>() {
    allow_scratch(add_narrow_gradient<kColumns>, kBytes);
    add_narrow_gradient<kColumns><<<blocks, kBlock, kBytes, device::stream(target.buffer.device())>>>(g);
  });
  device::check_launch("narrow_gradient");
}

}  // namespace temper::backends::hopper
