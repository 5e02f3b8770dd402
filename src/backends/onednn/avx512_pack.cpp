#ifdef __x86_64__
#include "backends/onednn/avx512_pack.h"

#include <algorithm>

#include "backends/onednn/blocks.h"

namespace temper::backends::avx512 {
namespace {

// Lines of a power of two share cache sets.
constexpr int64_t kGap = 16;
// Of a matrix that stays in the first cache wherever its lines lie.
constexpr int64_t kLittle = 4096;  // floats

uint32_t mask_of(int64_t count, int64_t most) {
  return count >= most ? static_cast<uint32_t>((uint64_t{1} << most) - 1)
                       : (1u << std::max<int64_t>(count, 0)) - 1;
}

// Sixteen units from `count` elements, zeros behind them; bfloat16 is widened for float32 units.
template <Units kUnits, class T>
TEMPER_AVX512_INLINE __m512i load_units(const T* from, int64_t count) {
  if constexpr (kUnits == Units::kPairs)
    return _mm512_maskz_loadu_epi16(mask_of(count, 32), from);
  else if constexpr (sizeof(T) == 4)
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask_of(count, 16)), from);
  else
    return _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask_of(count, 16)), from)),
        16);
}

// rows[i] unit j <-> rows[j] unit i, in four rounds of exchanges.
TEMPER_AVX512_INLINE void transpose(__m512i (&rows)[16]) {
  __m512i other[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(other[i], other[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(other[i], other[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(other[i + 1], other[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(other[i + 1], other[i + 3]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 16; i += 8)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      other[i + j] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0x88);
      other[i + j + 4] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0xdd);
    }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    rows[j] = _mm512_shuffle_i32x4(other[j], other[j + 8], 0x88);
    rows[j + 8] = _mm512_shuffle_i32x4(other[j], other[j + 8], 0xdd);
  }
}

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
    for (int64_t c = 0; c < columns; c += kLanes)
      _mm512_store_si512(panel + c, load_units<Units::kFloats>(from + c, columns - c));
}

TEMPER_AVX512 void pack_pair_lines(const BFloat16* from, int64_t stride, int64_t k, int64_t columns,
                                   float* panel) {
  for (int64_t at = 0; at < k; at += 2, from += 2 * stride, panel += kPanel)
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
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

int64_t line_of(int64_t rows) { return (rows + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes) + kGap; }

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

int64_t scratch_for_rows(Units units, int64_t rows, int64_t k) {
  const int64_t lying = rows * (units_in(units, k) + kGap), lines = units_in(units, k) * line_of(rows);
  return std::max(lying, lines);
}

Rows pack_rows(Units units, const Matrix& a, int64_t rows, int64_t k, float* scratch) {
  const Block source{const_cast<void*>(a.data), a.dtype, a.stride};
  if (units == Units::kFloats) {
    if (a.transposed) {
      if (a.dtype == DType::kF32 && k * a.stride <= kLittle)
        return {static_cast<const float*>(a.data), 1, a.stride};
      copy_block(source, {scratch, DType::kF32, line_of(rows)}, k, rows);
      return {scratch, 1, line_of(rows)};
    }
    if (a.dtype == DType::kF32) return {static_cast<const float*>(a.data), a.stride, 1};
    copy_block(source, {scratch, DType::kF32, k + kGap}, rows, k);
    return {scratch, k + kGap, 1};
  }
  if (a.transposed) {
    pack_pairs_of_lines(a, rows, k, scratch);
    return {scratch, 1, line_of(rows)};
  }
  if (k % 2 == 0 && a.stride % 2 == 0) return {static_cast<const float*>(a.data), a.stride / 2, 1};
  const int64_t step = units_in(units, k) + kGap;
  copy_block(source, {scratch, DType::kBF16, 2 * step}, rows, k);
  for (int64_t r = 0; r < rows && k % 2 != 0; ++r)
    reinterpret_cast<BFloat16*>(scratch + r * step)[k] = BFloat16(0);
  return {scratch, step, 1};
}

void pack_panel(Units units, const Matrix& b, int64_t k, int64_t columns, float* panel) {
  if (units == Units::kPairs)
    pack_panel_of<Units::kPairs, BFloat16>(b, k, columns, panel);
  else if (b.dtype == DType::kBF16)
    pack_panel_of<Units::kFloats, BFloat16>(b, k, columns, panel);
  else
    pack_panel_of<Units::kFloats, float>(b, k, columns, panel);
}

Columns pack_columns(Units units, const Matrix& b, int64_t k, int64_t columns, int64_t rows, float* scratch) {
  constexpr int64_t kFewRows = 24;
  if (units == Units::kFloats && b.dtype == DType::kF32 && !b.transposed &&
      (k * b.stride <= kLittle || rows <= kFewRows))
    return {static_cast<const float*>(b.data), b.stride, kPanel};
  const int64_t panel_step = units_in(units, k) * kPanel;
  for (int64_t c = 0; c < columns; c += kPanel)
    pack_panel(units, b.block(0, c), k, std::min(kPanel, columns - c), scratch + c / kPanel * panel_step);
  return {scratch, kPanel, panel_step};
}

}  // namespace temper::backends::avx512

#endif
