#pragma once
#include <immintrin.h>

#include "backends/onednn/tile.h"

// How operands lie for avx512_tile.cpp. Everything is counted in units of 32 bits along k: one float32, or
// two neighbouring bfloat16, the last of them padded with zero.
#define TEMPER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TEMPER_AVX512_INLINE TEMPER_AVX512 __attribute__((always_inline)) inline

namespace temper::backends::avx512 {

constexpr int64_t kLanes = 16;          // units in a vector
constexpr int64_t kPanel = 4 * kLanes;  // columns of b side by side
enum class Units { kFloats, kPairs };

constexpr int64_t elements_of(Units units) { return units == Units::kPairs ? 2 : 1; }
constexpr int64_t units_in(Units units, int64_t elements) {
  return (elements + elements_of(units) - 1) / elements_of(units);
}

// Unit (row, k) lies at data[row * row_step + k * unit_step].
struct Rows {
  const float* data;
  int64_t row_step, unit_step;
};

// Unit k of panel p's columns lies at data[p * panel_step + k * unit_step], one column behind the other. What
// is behind the last column must not be read.
struct Columns {
  const float* data;
  int64_t unit_step, panel_step;
};

// a [rows, k] where it lies if that has the form, else a copy in `scratch` of scratch_for_rows() units.
int64_t scratch_for_rows(Units units, int64_t rows, int64_t k);
TEMPER_AVX512 Rows pack_rows(Units units, const Matrix& a, int64_t rows, int64_t k, float* scratch);

// b [k, columns] as panels of kPanel columns, [panels][units][kPanel], in `scratch`; or where it lies, if it
// has that form and is little memory, or is read so few times, for `rows` of a, that a copy does not pay.
Columns pack_columns(Units units, const Matrix& b, int64_t k, int64_t columns, int64_t rows, float* scratch);
// One panel of up to kPanel columns.
void pack_panel(Units units, const Matrix& b, int64_t k, int64_t columns, float* panel);

}  // namespace temper::backends::avx512
