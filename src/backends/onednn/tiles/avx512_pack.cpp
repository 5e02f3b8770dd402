#ifdef __x86_64__
#include "backends/onednn/tiles/avx512_pack.h"

#include <algorithm>

#include "backends/onednn/tiles/avx512_units.h"
#include "backends/onednn/tiles/blocks.h"

namespace temper::backends::avx512 {
namespace {

constexpr int64_t kLinesAhead = 16;  // of b, fetched while it is packed: each begins in another page

// Two lines of k as vectors of pairs, 32 columns of them.
struct Interleaved {
  __m512i low, high;
};
TEMPER_AVX512_INLINE Interleaved interleave(const BFloat16* even, const BFloat16* odd, int64_t columns) {
  const __m512i a = _mm512_maskz_loadu_epi16(mask_of(columns, 32), even);
  const __m512i b =
      odd == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask_of(columns, 32), odd);
  const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
  // The halves of each 128 bits are now apart; back into the order of columns.
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  return {_mm512_permutex2var_epi64(low, first, high), _mm512_permutex2var_epi64(low, last, high)};
}

// Sixteen columns, whose elements follow each other in memory, into lanes of the panel.
template <Units kUnits, class T>
TEMPER_AVX512 void pack_lying(const T* from, int64_t stride, int64_t k, int64_t columns, float* panel) {
  constexpr int64_t kElements = kLanes * elements_of(kUnits);
  for (int64_t at = 0; at < k; at += kElements) {
    __m512i block[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      block[i] = i < columns ? load_units<kUnits>(from + i * stride + at, k - at) : _mm512_setzero_si512();
    transpose(block);
    const int64_t units = std::min(kLanes, units_in(kUnits, k - at));
    float* to = panel + at / elements_of(kUnits) * kPanel;
    if (units == kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kPanel, block[i]);
    } else {
      for (int64_t i = 0; i < units; ++i) _mm512_store_si512(to + i * kPanel, block[i]);
    }
  }
}

template <class T>
TEMPER_AVX512 void pack_float_lines(const T* from, int64_t stride, int64_t k, int64_t columns, float* panel) {
  for (int64_t at = 0; at < k; ++at, from += stride, panel += kPanel)
    for (int64_t c = 0; c < columns; c += kLanes) {
      _mm_prefetch(from + kLinesAhead * stride + c, _MM_HINT_T0);
      _mm512_store_si512(panel + c, load_units<Units::kFloats>(from + c, columns - c));
    }
}

TEMPER_AVX512 void pack_pair_lines(const BFloat16* from, int64_t stride, int64_t k, int64_t columns,
                                   float* panel) {
  for (int64_t at = 0; at < k; at += 2, from += 2 * stride, panel += kPanel)
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
      _mm_prefetch(from + kLinesAhead * stride + c, _MM_HINT_T0);
      _mm_prefetch(from + (kLinesAhead + 1) * stride + c, _MM_HINT_T0);
      const Interleaved pairs = interleave(from + c, at + 1 < k ? from + stride + c : nullptr, columns - c);
      _mm512_store_si512(panel + c, pairs.low);
      _mm512_store_si512(panel + c + kLanes, pairs.high);
    }
}

template <Units kUnits, class T>
void pack_panel_of(const Matrix& b, int64_t k, int64_t columns, float* panel) {
  const T* from = static_cast<const T*>(b.data);
  if (b.transposed) {
    for (int64_t c = 0; c < columns; c += kLanes)
      pack_lying<kUnits>(from + c * b.stride, b.stride, k, columns - c, panel + c);
  } else if constexpr (kUnits == Units::kPairs) {
    pack_pair_lines(from, b.stride, k, columns, panel);
  } else {
    pack_float_lines(from, b.stride, k, columns, panel);
  }
}

// a's lines of k, two by two: unit (row, k) at [k][row].
TEMPER_AVX512 void pack_pairs_of_lines(const Matrix& a, int64_t rows, int64_t k, float* to) {
  const auto* from = static_cast<const BFloat16*>(a.data);
  for (int64_t at = 0; at < k; at += 2, from += 2 * a.stride, to += line_of(rows))
    for (int64_t r = 0; r < rows; r += 2 * kLanes) {
      const Interleaved pairs = interleave(from + r, at + 1 < k ? from + a.stride + r : nullptr, rows - r);
      _mm512_storeu_si512(to + r, pairs.low);
      _mm512_storeu_si512(to + r + kLanes, pairs.high);
    }
}

}  // namespace

Rows pack_pair_rows(const Matrix& a, int64_t rows, int64_t k, float* scratch) {
  if (a.transposed) {
    pack_pairs_of_lines(a, rows, k, scratch);
    return {scratch, 1, line_of(rows)};
  }
  if (k % 2 == 0 && a.stride % 2 == 0) return {static_cast<const float*>(a.data), a.stride / 2, 1};
  const int64_t step = units_in(Units::kPairs, k) + kTileGap;
  copy_block({const_cast<void*>(a.data), a.dtype, a.stride}, {scratch, DType::kBF16, 2 * step}, rows, k);
  for (int64_t r = 0; r < rows && k % 2 != 0; ++r)
    reinterpret_cast<BFloat16*>(scratch + r * step)[k] = BFloat16(0);
  return {scratch, step, 1};
}

void pack_pair_panel(const Matrix& b, int64_t k, int64_t columns, float* panel) {
  pack_panel_of<Units::kPairs, BFloat16>(b, k, columns, panel);
}

void pack_float_panel(const Matrix& b, int64_t k, int64_t columns, float* panel) {
  if (b.dtype == DType::kBF16)
    pack_panel_of<Units::kFloats, BFloat16>(b, k, columns, panel);
  else
    pack_panel_of<Units::kFloats, float>(b, k, columns, panel);
}

}  // namespace temper::backends::avx512

#endif
