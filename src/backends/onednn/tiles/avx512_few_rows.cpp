// Few rows of a and columns of b that lie one behind the other in memory, as the weights of a linear do:
// blocks of 16 columns by 16 units are turned in registers and met by all rows, so b is read once and written
// nowhere.
#ifdef __x86_64__
#include "backends/onednn/tiles/avx512_few_rows.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "backends/onednn/tiles/avx512_units.h"

namespace temper::backends::avx512 {
namespace {

constexpr int64_t kRowsAtOnce = 8;  // their sums stay in registers
constexpr int64_t kShort = 512;     // elements of a column
constexpr int kFewestRows = 2;      // so few multiplications that turning columns is what takes the time

// Up to sixteen columns. Nothing is fetched ahead where they are long: the processor foresees them, and
// asking cost a third of the speed.
template <class T>
struct Columns16 {
  const T* data;
  int64_t stride, count;
};

template <Units kUnits, int kRows>
TEMPER_AVX512_INLINE void add_unit(const float* a, int64_t row_step, __m512i b, __m512 (&sums)[kRows]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i unit = _mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(a + r * row_step)));
    if constexpr (kUnits == Units::kPairs)
      sums[r] = _mm512_dpbf16_ps(sums[r], (__m512bh)unit, (__m512bh)b);
    else
      sums[r] = _mm512_fmadd_ps(_mm512_castsi512_ps(unit), _mm512_castsi512_ps(b), sums[r]);
  }
}

// Units [0, 4) of sixteen whole columns, unit by unit. Loads bring four columns into each vector, so that the
// exchanges stay within its quarters: half of those that a whole block needs, which wait for one port of the
// processor.
TEMPER_AVX512_INLINE void load_quad(const float* column, int64_t stride, __m512i (&units)[4]) {
  __m512i columns[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto at = [&](int c) TEMPER_AVX512 {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(column + c * stride));
    };
    columns[i] = _mm512_broadcast_i32x4(at(i));
    columns[i] = _mm512_mask_broadcast_i32x4(columns[i], 0x00f0, at(i + 4));
    columns[i] = _mm512_mask_broadcast_i32x4(columns[i], 0x0f00, at(i + 8));
    columns[i] = _mm512_mask_broadcast_i32x4(columns[i], 0xf000, at(i + 12));
  }
  const __m512i low[2] = {_mm512_unpacklo_epi32(columns[0], columns[1]),
                          _mm512_unpacklo_epi32(columns[2], columns[3])},
                high[2] = {_mm512_unpackhi_epi32(columns[0], columns[1]),
                           _mm512_unpackhi_epi32(columns[2], columns[3])};
  units[0] = _mm512_unpacklo_epi64(low[0], low[1]);
  units[1] = _mm512_unpackhi_epi64(low[0], low[1]);
  units[2] = _mm512_unpacklo_epi64(high[0], high[1]);
  units[3] = _mm512_unpackhi_epi64(high[0], high[1]);
}

// The lines of four columns at one place, of the sixteen that come next: short columns end before the
// processor foresees them.
inline void ask_ahead(const float* column, int64_t stride) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_prefetch(column + i * stride);
}

// sums += a b over k elements from `from` on.
template <Units kUnits, int kRows, class T>
TEMPER_AVX512_INLINE void add_units(const Rows& a, const Columns16<T>& b, int64_t from, int64_t k,
                                    __m512 (&sums)[kRows]) {
  constexpr int64_t kElements = elements_of(kUnits), kStep = kLanes * kElements;
  const float* row = a.data + from / kElements * a.unit_step;
  for (int64_t at = 0; at < k; at += kStep) {
    const T* column = b.data + from + at;
    if constexpr (kUnits == Units::kFloats && std::is_same_v<T, float> && kRows <= kFewestRows)
      if (b.count == 16 && b.stride < kShort && k - at >= kStep) {
#pragma GCC unroll 4
        for (int quad = 0; quad < 4; ++quad) {
          __m512i units[4];
          ask_ahead(column + (16 + 4 * quad) * b.stride, b.stride);
          load_quad(column + 4 * quad, b.stride, units);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i, row += a.unit_step) add_unit<kUnits>(row, a.row_step, units[i], sums);
        }
        continue;
      }
    __m512i block[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      block[i] = i < b.count ? load_units<kUnits>(column + i * b.stride, k - at) : _mm512_setzero_si512();
    transpose(block);
    if (k - at >= kStep) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i, row += a.unit_step) add_unit<kUnits>(row, a.row_step, block[i], sums);
    } else {
      for (int64_t i = 0; i < units_in(kUnits, k - at); ++i, row += a.unit_step)
        add_unit<kUnits>(row, a.row_step, block[i], sums);
    }
  }
}

// c [kRows, count] (+)= a b: the blocks of k one after the other, as run_corner adds them.
template <Units kUnits, int kRows, class T>
TEMPER_AVX512 void run_columns(const Rows& a, const Columns16<T>& b, int64_t k, float* c, int64_t stride,
                               bool accumulate) {
  constexpr int64_t kStep = kDepth * elements_of(kUnits);
  const auto mask = static_cast<__mmask16>(mask_of(b.count, 16));
  __m512 all[kRows];
  for (int64_t from = 0; from < k; from += kStep) {
    __m512 sums[kRows];
#pragma GCC unroll 8
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    add_units<kUnits>(a, b, from, std::min(kStep, k - from), sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (from > 0)
        all[r] = _mm512_add_ps(all[r], sums[r]);
      else
        all[r] = accumulate ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + r * stride), sums[r]) : sums[r];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_ps(c + r * stride, mask, all[r]);
}

// Some rows after the others, while sixteen columns are in a near cache.
template <Units kUnits, class T>
void run_few(const Rows& a, const Tile& tile) {
  static constexpr auto kRuns = []<size_t... kAt>(std::index_sequence<kAt...>) {
    return std::array{run_columns<kUnits, static_cast<int>(kAt) + 1, T>...};
  }
  (std::make_index_sequence<kRowsAtOnce>());
  const int64_t stride = tile.b.stride;
  for (int64_t column = 0; column < tile.n; column += kLanes) {
    const Columns16<T> b{static_cast<const T*>(tile.b.data) + column * stride, stride,
                         std::min(kLanes, tile.n - column)};
    for (int64_t row = 0; row < tile.m; row += kRowsAtOnce)
      kRuns[static_cast<size_t>(std::min(kRowsAtOnce, tile.m - row) - 1)](
          {a.data + row * a.row_step, a.row_step, a.unit_step}, b, tile.k,
          tile.c + row * tile.stride + column, tile.stride, tile.accumulate);
  }
}

}  // namespace

void few_float_rows(const Rows& a, const Tile& tile) {
  if (tile.b.dtype == DType::kBF16)
    run_few<Units::kFloats, BFloat16>(a, tile);
  else
    run_few<Units::kFloats, float>(a, tile);
}

void few_pair_rows(const Rows& a, const Tile& tile) { run_few<Units::kPairs, BFloat16>(a, tile); }

}  // namespace temper::backends::avx512

#endif
