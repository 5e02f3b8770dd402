#pragma once
#include <immintrin.h>

#include "backends/onednn/tiles/tile_kernels.h"

// How operands lie for avx512_tile.cpp.
#define TEMPER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TEMPER_AVX512_INLINE TEMPER_AVX512 __attribute__((always_inline)) inline

namespace temper::backends::avx512 {

constexpr int64_t kLanes = 16, kVectors = 4, kPanel = kVectors * kLanes;
// Units of k at once: a panel of b and some hundred rows of a fit the second cache.
constexpr int64_t kDepth = 512;
enum class Units { kFloats, kPairs };

constexpr int64_t elements_of(Units units) { return units == Units::kPairs ? 2 : 1; }
constexpr int64_t units_in(Units units, int64_t elements) {
  return (elements + elements_of(units) - 1) / elements_of(units);
}

// TileKernels' pack_rows and pack_panel.
Rows pack_pair_rows(const Matrix& a, int64_t rows, int64_t k, float* scratch);
void pack_pair_panel(const Matrix& b, int64_t k, int64_t columns, float* panel);
void pack_float_panel(const Matrix& b, int64_t k, int64_t columns, float* panel);

}  // namespace temper::backends::avx512
