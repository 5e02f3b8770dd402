// Few rows of a and columns of b that lie one behind the other in memory, of a few k, as queries and keys of
// a head do: sixteen products are summed lane by lane, then their lanes together, in half of the shuffles
// that turning the columns takes.
#ifdef __x86_64__
#include "backends/onednn/tiles/avx512_short_dots.h"

#include <algorithm>

#include "backends/onednn/tiles/avx512_units.h"

namespace temper::backends::avx512 {
namespace {

TEMPER_AVX512_INLINE __m512 halves(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

// Lane i is the sum of the lanes of all[i]: of pairs of lanes, then of blocks of four, so that each is summed
// in the same order.
TEMPER_AVX512_INLINE __m512 sum_lanes(const __m512 (&all)[16]) {
  __m512 pairs[8], blocks[4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    pairs[i] = _mm512_add_ps(_mm512_unpacklo_ps(all[2 * i], all[2 * i + 1]),
                             _mm512_unpackhi_ps(all[2 * i], all[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d first = _mm512_castps_pd(pairs[2 * i]), second = _mm512_castps_pd(pairs[2 * i + 1]);
    blocks[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
                              _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
  }
  return halves(halves(blocks[0], blocks[1]), halves(blocks[2], blocks[3]));
}

// The first kRows rows and 16 / kRows columns of a tile.
template <int kRows>
TEMPER_AVX512 void run_some(const Rows& a, const Tile& tile) {
  constexpr int kColumns = 16 / kRows;
  const auto* const b = static_cast<const float*>(tile.b.data);
  __m512 sums[16];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t at = 0; at < tile.k; at += kLanes) {
    const auto mask = static_cast<__mmask16>(mask_of(tile.k - at, kLanes));
    __m512 row[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) row[r] = _mm512_maskz_loadu_ps(mask, a.data + r * a.row_step + at);
#pragma GCC unroll 16
    for (int i = 0; i < kColumns; ++i) {
      // Behind the last column the last one again, whose sums are not stored.
      const float* column = b + std::min<int64_t>(i, tile.n - 1) * tile.b.stride + at;
      const __m512 values = _mm512_maskz_loadu_ps(mask, column);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
        sums[r * kColumns + i] = _mm512_fmadd_ps(row[r], values, sums[r * kColumns + i]);
    }
  }
  alignas(64) float all[16];
  _mm512_store_ps(all, sum_lanes(sums));
  const auto mask = static_cast<__mmask16>(mask_of(tile.n, kColumns));
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
    _mm512_mask_storeu_ps(tile.c + r * tile.stride, mask, _mm512_maskz_loadu_ps(mask, all + r * kColumns));
}

template <int kRows>
TEMPER_AVX512_INLINE void run_rows(const Rows& a, const Tile& tile, int64_t row) {
  constexpr int kColumns = 16 / kRows;
  const Rows rows{a.data + row * a.row_step, a.row_step, 1};
  Tile part = tile;
  part.c += row * tile.stride;
  for (; part.n > 0; part.n -= kColumns, part.c += kColumns) {
    run_some<kRows>(rows, part);
    part.b.data = static_cast<const float*>(part.b.data) + kColumns * part.b.stride;
  }
}

}  // namespace

TEMPER_AVX512 void short_float_dots(const Rows& a, const Tile& tile) {
  int64_t row = 0;
  for (; row + 4 <= tile.m; row += 4) run_rows<4>(a, tile, row);
  for (; row + 2 <= tile.m; row += 2) run_rows<2>(a, tile, row);
  if (row < tile.m) run_rows<1>(a, tile, row);
}

}  // namespace temper::backends::avx512

#endif
