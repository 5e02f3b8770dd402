#pragma once
#include <immintrin.h>

#include <algorithm>

#include "backends/onednn/tiles/avx512_pack.h"

// Units of 32 bits in vectors of AVX-512.
namespace temper::backends::avx512 {

inline uint32_t mask_of(int64_t count, int64_t most) {
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

}  // namespace temper::backends::avx512
