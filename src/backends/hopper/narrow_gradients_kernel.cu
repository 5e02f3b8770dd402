// Both narrow products of an adapter's backward pass from one reading of dy, which is nearly all that they
// cost. A block walks down its rows, 128 at a time, and across its panel, 128 columns at a time; a warp of
// its own copies tiles ahead. Each of eight warps multiplies 16 of a tile's rows by b, and 16 of its columns
// by low: sums over columns end with a row of tiles, those over rows stay in registers until the block's rows
// end.
#include "backends/hopper/narrow_gradients_kernel.h"

#include <algorithm>

#include "backends/gpu/device_code.h"
#include "backends/gpu/async_copies.h"
#include "backends/hopper/wgmma.h"

namespace temper::backends::hopper {
namespace {

using Arguments = NarrowArguments;
using Slice = Arguments::Slice;

constexpr int kWarps = 8, kThreadsComputing = 32 * kWarps, kRing = 4;
constexpr int kBox = kNarrowRows * 128, kTileBytes = 2 * kBox;  // two boxes of 64 columns

// Shared memory: the ring of tiles, b of the panel, two tiles' rows of low, barriers. Rows of b and low are
// 16 bytes longer than they need to be, so that eight of them are in different banks.
template <int kRank>
struct Places {
  static constexpr int kRow = 2 * kRank + 16, kTiles = most_tiles(kRank);
  static constexpr int kB = kRing * kTileBytes, kLow = kB + kTiles * kNarrowColumns * kRow,
                       kLowBytes = kNarrowRows * kRow, kFull = kLow + 2 * kLowBytes,
                       kEmpty = kFull + 8 * kRing, kBytes = kEmpty + 8 * kRing + kGroupBytes;
};

// What a block does.
struct Share {
  const Slice& slice;
  int panel, column, tiles;  // column: of dy
  int first_row, end_row;    // tiles of rows
  int number;

  __device__ static const Slice& slice_of(const Arguments& g, int panel) {
    int found = 0;
    for (int s = 1; s < g.slice_count; ++s)
      if (g.slices[s].panel <= panel) found = s;
    return g.slices[found];
  }
  __device__ explicit Share(const Arguments& g)
      : slice(slice_of(g, static_cast<int>(blockIdx.x))),
        panel(static_cast<int>(blockIdx.x)),
        number(static_cast<int>(blockIdx.y)) {
    const int in_slice = (panel - slice.panel) * g.tiles * kNarrowColumns;
    column = slice.column + in_slice;
    tiles = min(g.tiles, (slice.columns - in_slice + kNarrowColumns - 1) / kNarrowColumns);
    const int row_tiles = (g.rows + kNarrowRows - 1) / kNarrowRows,
              each = (row_tiles + g.shares - 1) / g.shares;
    first_row = min(number * each, row_tiles);
    end_row = min(first_row + each, row_tiles);
  }
};

template <int kRank>
__device__ void produce(const Arguments& g, const Share& share, uint32_t base) {
  using P = Places<kRank>;
  int stage = 0;
  uint32_t parity = 1;
  for (int row = share.first_row; row < share.end_row; ++row)
    for (int tile = 0; tile < share.tiles; ++tile) {
      wait(base + P::kEmpty + 8 * stage, parity);
      const uint32_t full = base + P::kFull + 8 * stage, to = base + stage * kTileBytes;
      expect_bytes(full, kTileBytes);
      for (int box = 0; box < 2; ++box)
        load_box(to + box * kBox, g.dy, full, share.column + tile * kNarrowColumns + 64 * box,
                 row * kNarrowRows);
      if (++stage == kRing) stage = 0, parity ^= 1;
    }
}

// Rows [first, first + kCount) of a narrow matrix, of which `count` are there, into shared memory; beyond
// them and beyond the rank are zeros. All computing threads take part: load asks for them, store puts them
// there.
template <int kRank, int kCount>
class NarrowRows {
 public:
  __device__ void load(const __nv_bfloat16* matrix, int64_t stride, int rank, int first, int count) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = i * kThreadsComputing + static_cast<int>(threadIdx.x), row = first + at / kChunks,
                column = at % kChunks * 8;
      chunks_[i] = uint4{};
      if (row < count && column < rank)
        chunks_[i] = *reinterpret_cast<const uint4*>(matrix + row * stride + column);
    }
  }
  __device__ void store(uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = i * kThreadsComputing + static_cast<int>(threadIdx.x);
      store_shared(to + at / kChunks * Places<kRank>::kRow + at % kChunks * 16, chunks_[i]);
    }
  }

 private:
  static constexpr int kChunks = kRank / 8, kEach = kCount * kChunks / kThreadsComputing;
  uint4 chunks_[kEach];
};

template <int kRank>
class Computer {
 public:
  __device__ Computer(const Arguments& g, const Share& share, uint32_t base)
      : g_(g),
        share_(share),
        base_(base),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    NarrowRows<kRank, kNarrowRows> rows;
    load_b();
    load_low(rows, share_.first_row);
    for (int row = share_.first_row; row < share_.end_row; ++row) {
      const uint32_t low = base_ + P::kLow + row % 2 * P::kLowBytes;
      rows.store(low);
      load_low(rows, row + 1);
      sync_threads(1, kThreadsComputing);
      float low_sums[kRank / 8][4] = {};
#pragma unroll
      for (int tile = 0; tile < P::kTiles; ++tile)
        if (tile < share_.tiles) {
          wait(base_ + P::kFull + 8 * stage_, parity_);
          const uint32_t dy = base_ + stage_ * kTileBytes;
          multiply_by_b(dy, base_ + P::kB + tile * kNarrowColumns * P::kRow, low_sums);
          multiply_by_low(dy, low, b_sums_[tile]);
          __syncwarp();
          if (lane_ == 0) arrive(base_ + P::kEmpty + 8 * stage_);
          if (++stage_ == kRing) stage_ = 0, parity_ ^= 1;
        }
      const int first = row * kNarrowRows + 16 * warp_;
      write(low_sums, g_.low_sums + (int64_t{share_.panel} * g_.rows + first) * kRank, g_.rows - first);
    }
    const int64_t columns = int64_t{g_.tiles} * kNarrowColumns,
                  first = (int64_t{share_.number} * g_.panels + share_.panel) * columns + 16 * warp_;
#pragma unroll
    for (int tile = 0; tile < P::kTiles; ++tile)
      if (tile < share_.tiles)
        write(b_sums_[tile], g_.b_sums + (first + tile * kNarrowColumns) * kRank, kNarrowColumns);
  }

 private:
  using P = Places<kRank>;
  using Sums = float[kRank / 8][4];

  __device__ void load_b() const {
    const int first = share_.column - share_.slice.column;
    for (int tile = 0; tile < share_.tiles; ++tile) {
      NarrowRows<kRank, kNarrowColumns> rows;
      rows.load(share_.slice.b, share_.slice.rank, share_.slice.rank, first + tile * kNarrowColumns,
                share_.slice.columns);
      rows.store(base_ + P::kB + tile * kNarrowColumns * P::kRow);
    }
  }
  __device__ void load_low(NarrowRows<kRank, kNarrowRows>& rows, int row) const {
    if (row < share_.end_row)
      rows.load(share_.slice.low, share_.slice.low_stride, share_.slice.rank, row * kNarrowRows, g_.rows);
  }

  // Where a row of the tile has its 16-byte chunk.
  __device__ static uint32_t chunk_at(uint32_t dy, int row, int chunk) {
    return chunk_of(dy + chunk / 8 * kBox, row, chunk % 8);
  }
  // 16 rows of a narrow matrix, as the second operand: of each 8 columns two registers.
  __device__ void load_narrow(uint32_t from, uint32_t (&narrow)[kRank / 4]) const {
    const uint32_t at = from + (lane_ % 16) * P::kRow + lane_ / 16 * 16;
#pragma unroll
    for (int n = 0; n < kRank / 8; n += 2) load_tiles_transposed(at + n * 16, narrow + 2 * n);
  }
  __device__ static void add(Sums& sums, const uint32_t (&a)[4], const uint32_t (&narrow)[kRank / 4]) {
#pragma unroll
    for (int n = 0; n < kRank / 8; ++n) add_small_product(sums[n], a, narrow + 2 * n);
  }

  // sums += 16 rows of the tile by b.
  __device__ void multiply_by_b(uint32_t dy, uint32_t b, Sums& sums) const {
#pragma unroll
    for (int k = 0; k < kNarrowColumns; k += 16) {
      uint32_t a[4], narrow[kRank / 4];
      load_tiles(chunk_at(dy, 16 * warp_ + lane_ % 16, k / 8 + lane_ / 16), a);
      load_narrow(b + k * P::kRow, narrow);
      add(sums, a, narrow);
    }
  }
  // sums += 16 columns of the tile, transposed, by low.
  __device__ void multiply_by_low(uint32_t dy, uint32_t low, Sums& sums) const {
#pragma unroll
    for (int k = 0; k < kNarrowRows; k += 16) {
      uint32_t a[4], narrow[kRank / 4];
      load_tiles_transposed(chunk_at(dy, k + lane_ / 16 * 8 + lane_ % 8, 2 * warp_ + lane_ / 8 % 2), a);
      load_narrow(low + k * P::kRow, narrow);
      add(sums, a, narrow);
    }
  }

  // 16 rows of sums, of which `rows` are there.
  __device__ void write(const Sums& sums, float* to, int rows) const {
#pragma unroll
    for (int n = 0; n < kRank / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane_ / 4 + 8 * half;
        if (row < rows)
          *reinterpret_cast<float2*>(to + row * kRank + 8 * n + lane_ % 4 * 2) =
              make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
      }
  }

  const Arguments& g_;
  const Share& share_;
  uint32_t base_;
  int warp_, lane_, stage_ = 0;
  uint32_t parity_ = 0;
  Sums b_sums_[P::kTiles] = {};
};

template <int kRank>
__global__ void __launch_bounds__(kThreadsComputing + 32, 1)
    narrow_gradients(const __grid_constant__ Arguments arguments) {
  using P = Places<kRank>;
  extern __shared__ char memory[];
  const uint32_t base = (shared_address(memory) + kGroupBytes - 1) / kGroupBytes * kGroupBytes;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kRing; ++stage) {
      init_barrier(base + P::kFull + 8 * stage, 1);
      init_barrier(base + P::kEmpty + 8 * stage, kWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  const Share share(arguments);
  if (threadIdx.x < kThreadsComputing)
    Computer<kRank>(arguments, share, base).run();
  else if (threadIdx.x == kThreadsComputing)
    produce<kRank>(arguments, share, base);
}

// Four sums at a time: of dlow over the slice's panels, then of db over the shares. A block row has a slice.
template <int kRank, class T>
__global__ void add_up(const __grid_constant__ Arguments g) {
  constexpr int kFours = kRank / 4;
  const Slice& s = g.slices[blockIdx.y];
  const int64_t columns = int64_t{g.tiles} * kNarrowColumns, of_low = int64_t{g.rows} * kFours,
                all = of_low + int64_t{s.columns} * kFours;
  const int panels = static_cast<int>((s.columns + columns - 1) / columns);
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * blockDim.x) {
    const bool low = i < of_low;
    const int64_t at = low ? i : i - of_low, row = at / kFours;
    const int rank = static_cast<int>(at % kFours) * 4;
    if (rank >= s.rank || (!low && s.db == nullptr)) continue;
    const float* from = low ? g.low_sums + (int64_t{s.panel} * g.rows + row) * kRank + rank
                            : g.b_sums + (s.panel * columns + row) * kRank + rank;
    const int64_t step = (low ? g.rows : g.panels * columns) * kRank;
    float4 sum{};
#pragma unroll 4
    for (int part = 0; part < (low ? panels : g.shares); ++part) {
      const float4 more = *reinterpret_cast<const float4*>(from + part * step);
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    if (low) {
      const uint2 packed{pack(s.scale * sum.x, s.scale * sum.y), pack(s.scale * sum.z, s.scale * sum.w)};
      *reinterpret_cast<uint2*>(s.dlow + row * s.dlow_stride + rank) = packed;
      continue;
    }
    T* const to = static_cast<T*>(s.db) + row * s.rank + rank;
    const float sums[] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int n = 0; n < 4; ++n)
      to[n] = static_cast<T>(s.accumulate ? static_cast<float>(to[n]) + sums[n] : sums[n]);
  }
}

template <int kRank>
void launch(const Arguments& arguments, cudaStream_t stream) {
  constexpr int kBytes = Places<kRank>::kBytes, kThreadsAdding = 256;
  allow_scratch(narrow_gradients<kRank>, kBytes);
  narrow_gradients<kRank>
      <<<dim3(arguments.panels, arguments.shares), kThreadsComputing + 32, kBytes, stream>>>(arguments);
  int64_t most = 0;
  for (int s = 0; s < arguments.slice_count; ++s)
    most = std::max(most, (int64_t{arguments.rows} + arguments.slices[s].columns) * (kRank / 4));
  const dim3 blocks(static_cast<unsigned>((most + kThreadsAdding - 1) / kThreadsAdding),
                    static_cast<unsigned>(arguments.slice_count));
  if (arguments.db_is_bfloat16)
    add_up<kRank, __nv_bfloat16><<<blocks, kThreadsAdding, 0, stream>>>(arguments);
  else
    add_up<kRank, float><<<blocks, kThreadsAdding, 0, stream>>>(arguments);
}

}  // namespace

void launch_narrow_gradients(int padded_rank, const NarrowArguments& arguments, cudaStream_t stream) {
  padded_rank == 16 ? launch<16>(arguments, stream) : launch<32>(arguments, stream);
}

}  // namespace temper::backends::hopper
