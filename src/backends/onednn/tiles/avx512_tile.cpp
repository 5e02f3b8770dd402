// TileKernels by AVX-512: six rows of a meet four vectors of columns in registers.
#include "backends/onednn/tiles/tile_kernels.h"

#ifdef __x86_64__

#include <array>
#include <utility>

#include "backends/onednn/tiles/avx512_few_rows.h"
#include "backends/onednn/tiles/avx512_pack.h"
#include "backends/onednn/tiles/avx512_short_dots.h"
#include "device/cpu_features.h"

namespace temper::backends {
namespace avx512 {
namespace {

constexpr int64_t kAhead = 8;  // units of k that b is fetched ahead

template <Units kUnits>
TEMPER_AVX512_INLINE __m512 multiply_add(__m512 a, __m512 b, __m512 sum) {
  if constexpr (kUnits == Units::kPairs)
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  else
    return _mm512_fmadd_ps(a, b, sum);
}

// c [kHeight, kWide * 16] (+)= a b over `units`.
template <Units kUnits, int kHeight, int kWide>
TEMPER_AVX512 void run_corner(const Rows& a, const Columns& columns, int64_t units, const Corner& c) {
  const auto last = static_cast<__mmask16>(0xffff >> (kLanes - c.last));
  __m512 sums[kHeight][kWide];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 4
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  const float *at = a.data, *line = columns.data;
  for (int64_t k = 0; k < units; ++k, at += a.unit_step, line += columns.unit_step) {
    __m512 b[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      b[v] = _mm512_maskz_loadu_ps(v + 1 == kWide ? last : static_cast<__mmask16>(0xffff), line + v * kLanes);
      _mm_prefetch(line + kAhead * columns.unit_step + v * kLanes, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const __m512 unit =
          _mm512_castsi512_ps(_mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(at + r * a.row_step))));
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sums[r][v] = multiply_add<kUnits>(unit, b[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      float* out = c.data + r * c.stride + v * kLanes;
      const __mmask16 mask = v + 1 == kWide ? last : static_cast<__mmask16>(0xffff);
      const __m512 sum =
          c.accumulate ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sums[r][v]) : sums[r][v];
      _mm512_mask_storeu_ps(out, mask, sum);
    }
}

template <Units kUnits>
constexpr auto corners() {
  return []<size_t... kAt>(std::index_sequence<kAt...>) {
    return std::array<TileKernels::Run, sizeof...(kAt)>{
        run_corner<kUnits, static_cast<int>(kAt / kVectors) + 1, static_cast<int>(kAt % kVectors) + 1>...};
  }
  (std::make_index_sequence<kTileRows * kVectors>());
}

constexpr auto kFloatCorners = corners<Units::kFloats>(), kPairCorners = corners<Units::kPairs>();
constexpr TileKernels kFloats{
    kLanes,         kVectors,         1, kDepth, kFloatCorners.data(), pack_float_panel, pack_float_rows,
    few_float_rows, short_float_dots, 3};
constexpr TileKernels kPairs{kLanes,         kVectors,     2, kDepth, kPairCorners.data(), pack_pair_panel,
                             pack_pair_rows, few_pair_rows};

bool has_floats() {
  for (const char* feature : {"avx512f", "avx512bw", "avx512vl", "avx512dq"})
    if (!has_cpu_feature(feature)) return false;
  return true;
}

}  // namespace
}  // namespace avx512

const TileKernels* avx512_kernels(DType products) {
  if (!avx512::has_floats()) return nullptr;
  if (products != DType::kBF16) return &avx512::kFloats;
  return has_cpu_feature("avx512_bf16") && !has_cpu_feature("amx_bf16") ? &avx512::kPairs : nullptr;
}

}  // namespace temper::backends

#else
namespace temper::backends {

const TileKernels* avx512_kernels(DType) { return nullptr; }

}  // namespace temper::backends
#endif
