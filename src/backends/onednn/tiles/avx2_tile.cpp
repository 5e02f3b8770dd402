// TileKernels by AVX2 and FMA: six rows of a meet two vectors of columns, twelve of sixteen registers are
// sums. bfloat16 operands are widened as they are packed.
#include "backends/onednn/tiles/tile_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/cpu_features.h"

#define TEMPER_AVX2 __attribute__((target("avx2,fma")))
#define TEMPER_AVX2_INLINE TEMPER_AVX2 __attribute__((always_inline)) inline

namespace temper::backends {
namespace avx2 {
namespace {

constexpr int64_t kLanes = 8, kVectors = 2, kPanel = kVectors * kLanes;
// Units of k at once: a panel of b takes 16 KiB, half of the smallest first cache.
constexpr int64_t kDepth = 256;
constexpr int64_t kAhead = 8;        // units of k that b is fetched ahead
constexpr int64_t kRowsAtOnce = 8;   // of few
constexpr int64_t kLinesAhead = 16;  // of b while it is packed: each begins in another page

TEMPER_AVX2_INLINE __m256i mask_of(int lanes) {
  const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), order);
}

// Vector `v` of kWide; the last is `mask` wide where kPart.
template <bool kPart, int kWide>
TEMPER_AVX2_INLINE __m256 load(const float* from, int v, __m256i mask) {
  if (kPart && v + 1 == kWide) return _mm256_maskload_ps(from + v * kLanes, mask);
  return _mm256_loadu_ps(from + v * kLanes);
}

template <int kHeight, int kWide, bool kPart>
TEMPER_AVX2_INLINE void run(const Rows& a, const Columns& columns, int64_t units, const Corner& c) {
  const __m256i mask = mask_of(c.last);
  __m256 sums[kHeight][kWide];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 2
    for (__m256& sum : row) sum = _mm256_setzero_ps();
  const float *at = a.data, *line = columns.data;
#pragma GCC unroll 4
  for (int64_t k = 0; k < units; ++k, at += a.unit_step, line += columns.unit_step) {
    __m256 b[kWide];
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) b[v] = load<kPart, kWide>(line, v, mask);
    _mm_prefetch(line + kAhead * columns.unit_step, _MM_HINT_T0);
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const __m256 unit = _mm256_broadcast_ss(at + r * a.row_step);
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) sums[r][v] = _mm256_fmadd_ps(unit, b[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) {
      float* out = c.data + r * c.stride;
      const __m256 sum =
          c.accumulate ? _mm256_add_ps(load<kPart, kWide>(out, v, mask), sums[r][v]) : sums[r][v];
      if (kPart && v + 1 == kWide)
        _mm256_maskstore_ps(out + v * kLanes, mask, sum);
      else
        _mm256_storeu_ps(out + v * kLanes, sum);
    }
}

// c [kHeight, kWide * 8] (+)= a b over `units`.
template <int kHeight, int kWide>
TEMPER_AVX2 void run_corner(const Rows& a, const Columns& columns, int64_t units, const Corner& c) {
  if (c.last == kLanes)
    run<kHeight, kWide, false>(a, columns, units, c);
  else
    run<kHeight, kWide, true>(a, columns, units, c);
}

constexpr auto kCorners = []<size_t... kAt>(std::index_sequence<kAt...>) {
  return std::array<TileKernels::Run, sizeof...(kAt)>{
      run_corner<static_cast<int>(kAt / kVectors) + 1, static_cast<int>(kAt % kVectors) + 1>...};
}
(std::make_index_sequence<kTileRows * kVectors>());

TEMPER_AVX2_INLINE __m256 widened(const float* from) { return _mm256_loadu_ps(from); }
TEMPER_AVX2_INLINE __m256 widened(const BFloat16* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// Eight floats of `count` elements, zeros behind them.
template <class T>
TEMPER_AVX2_INLINE __m256 load_floats(const T* from, int64_t count) {
  if (count >= kLanes) return widened(from);
  T some[kLanes] = {};
  std::copy_n(from, std::max<int64_t>(count, 0), some);
  return widened(some);
}

// rows[i] lane j <-> rows[j] lane i, in three rounds of exchanges.
TEMPER_AVX2_INLINE void transpose(__m256 (&rows)[8]) {
  __m256 other[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    other[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    other[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    rows[i] = _mm256_shuffle_ps(other[i], other[i + 2], 0x44);
    rows[i + 1] = _mm256_shuffle_ps(other[i], other[i + 2], 0xee);
    rows[i + 2] = _mm256_shuffle_ps(other[i + 1], other[i + 3], 0x44);
    rows[i + 3] = _mm256_shuffle_ps(other[i + 1], other[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    other[i] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20);
    other[i + 4] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = other[i];
}

// Eight columns, whose elements follow each other in memory, into lanes of the panel.
template <class T>
TEMPER_AVX2 void pack_lying(const T* from, int64_t stride, int64_t k, int64_t columns, float* panel) {
  for (int64_t at = 0; at < k; at += kLanes) {
    __m256 block[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; ++i)
      block[i] = i < columns ? load_floats(from + i * stride + at, k - at) : _mm256_setzero_ps();
    transpose(block);
    const int64_t units = std::min(kLanes, k - at);
    float* to = panel + at * kPanel;
    if (units == kLanes) {
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) _mm256_storeu_ps(to + i * kPanel, block[i]);
    } else {
      for (int64_t i = 0; i < units; ++i) _mm256_storeu_ps(to + i * kPanel, block[i]);
    }
  }
}

template <class T>
TEMPER_AVX2 void pack_lines(const T* from, int64_t stride, int64_t k, int64_t columns, float* panel) {
  for (int64_t at = 0; at < k; ++at, from += stride, panel += kPanel) {
    _mm_prefetch(from + kLinesAhead * stride, _MM_HINT_T0);
    for (int64_t c = 0; c < kPanel; c += kLanes)
      _mm256_storeu_ps(panel + c, load_floats(from + c, columns - c));
  }
}

template <class T>
void pack_panel_of(const Matrix& b, int64_t k, int64_t columns, float* panel) {
  const T* from = static_cast<const T*>(b.data);
  if (!b.transposed) return pack_lines(from, b.stride, k, columns, panel);
  for (int64_t c = 0; c < kPanel; c += kLanes)
    pack_lying(from + c * b.stride, b.stride, k, columns - c, panel + c);
}

// Few rows of a and columns of b that lie one behind the other in memory: blocks of 8 columns by 8 units are
// turned in registers and met by all rows. A line of each column is copied first: lines of several columns
// share cache sets, and would leave before their second half is read.
struct Staged {
  static constexpr int64_t kLine = 2 * kLanes;

  // Up to a line of up to eight columns, zeros behind both.
  template <class T>
  TEMPER_AVX2_INLINE void stage(const T* from, int64_t stride, int64_t columns, int64_t k) {
#pragma GCC unroll 8
    for (int64_t c = 0; c < kLanes; ++c, from += stride) {
      _mm256_store_ps(data[c], c < columns ? load_floats(from, k) : _mm256_setzero_ps());
      if (k > kLanes)
        _mm256_store_ps(data[c] + kLanes,
                        c < columns ? load_floats(from + kLanes, k - kLanes) : _mm256_setzero_ps());
    }
  }

  alignas(32) float data[kLanes][kLine];
};

// sums += a b over up to eight units of staged columns.
template <int kRows>
TEMPER_AVX2_INLINE void add_block(const Rows& a, const Staged& b, int64_t from, int64_t k,
                                  __m256 (&sums)[kRows]) {
  __m256 block[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; ++i) block[i] = _mm256_load_ps(b.data[i] + from);
  transpose(block);
  const float* row = a.data + from * a.unit_step;
  const auto add = [&](__m256 units) TEMPER_AVX2 {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      sums[r] = _mm256_fmadd_ps(_mm256_broadcast_ss(row + r * a.row_step), units, sums[r]);
    row += a.unit_step;
  };
  if (k >= kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; ++i) add(block[i]);
  } else {
    for (int64_t i = 0; i < k; ++i) add(block[i]);
  }
}

// sums += a b over k units of up to eight columns.
template <int kRows, class T>
TEMPER_AVX2_INLINE void add_units(Rows a, const T* b, int64_t stride, int64_t columns, int64_t k,
                                  __m256 (&sums)[kRows]) {
  Staged staged;
  for (int64_t at = 0; at < k; at += Staged::kLine, a.data += Staged::kLine * a.unit_step) {
    staged.stage(b + at, stride, columns, k - at);
    add_block(a, staged, 0, k - at, sums);
    if (k - at > kLanes) add_block(a, staged, kLanes, k - at - kLanes, sums);
  }
}

// c [kRows, columns] (+)= a b: the blocks of k one after the other, as run adds them.
template <int kRows, class T>
TEMPER_AVX2 void run_columns(const Rows& all_rows, const Tile& tile, int64_t row, int64_t column) {
  const Rows a{all_rows.data + row * all_rows.row_step, all_rows.row_step, all_rows.unit_step};
  float* const c = tile.c + row * tile.stride + column;
  const int64_t columns = std::min(kLanes, tile.n - column);
  const __m256i mask = mask_of(static_cast<int>(columns));
  const T* b = static_cast<const T*>(tile.b.data) + column * tile.b.stride;
  __m256 all[kRows];
  for (int64_t from = 0; from < tile.k; from += kDepth) {
    const int64_t k = std::min(kDepth, tile.k - from);
    __m256 sums[kRows];
#pragma GCC unroll 8
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    add_units({a.data + from * a.unit_step, a.row_step, a.unit_step}, b + from, tile.b.stride, columns, k,
              sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float* out = c + r * tile.stride;
      if (from > 0)
        all[r] = _mm256_add_ps(all[r], sums[r]);
      else
        all[r] = tile.accumulate ? _mm256_add_ps(_mm256_maskload_ps(out, mask), sums[r]) : sums[r];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) _mm256_maskstore_ps(c + r * tile.stride, mask, all[r]);
}

template <class T>
void run_few(const Rows& a, const Tile& tile) {
  static constexpr auto kRuns = []<size_t... kAt>(std::index_sequence<kAt...>) {
    return std::array{run_columns<static_cast<int>(kAt) + 1, T>...};
  }
  (std::make_index_sequence<kRowsAtOnce>());
  for (int64_t column = 0; column < tile.n; column += kLanes)
    for (int64_t row = 0; row < tile.m; row += kRowsAtOnce)
      kRuns[static_cast<size_t>(std::min(kRowsAtOnce, tile.m - row) - 1)](a, tile, row, column);
}

void few_rows(const Rows& a, const Tile& tile) {
  if (tile.b.dtype == DType::kBF16)
    run_few<BFloat16>(a, tile);
  else
    run_few<float>(a, tile);
}

void pack_panel(const Matrix& b, int64_t k, int64_t columns, float* panel) {
  if (b.dtype == DType::kBF16)
    pack_panel_of<BFloat16>(b, k, columns, panel);
  else
    pack_panel_of<float>(b, k, columns, panel);
}

constexpr TileKernels kKernels{kLanes,     kVectors,        1,       kDepth, kCorners.data(),
                               pack_panel, pack_float_rows, few_rows};

}  // namespace
}  // namespace avx2

const TileKernels* avx2_kernels(DType products) {
  const bool here = has_cpu_feature("avx2") && has_cpu_feature("fma");
  return here && products == DType::kF32 ? &avx2::kKernels : nullptr;
}

}  // namespace temper::backends

#else
namespace temper::backends {

const TileKernels* avx2_kernels(DType) { return nullptr; }

}  // namespace temper::backends
#endif
