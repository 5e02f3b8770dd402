// The product as Goto and van de Geijn (2008) build it: b is packed into panels that stay in the second
// cache, six rows of a meet four vectors of columns in registers. a is read where it lies whenever it can be.
#include "backends/onednn/avx512_tile.h"

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <utility>

#include "backends/onednn/avx512_pack.h"
#include "backends/onednn/task_memory.h"
#include "device/facts.h"

namespace temper::backends {
namespace avx512 {
namespace {

constexpr int64_t kRows = 6;  // of a, in registers
constexpr int64_t kDepth =
    512;  // units of k at once: a panel of b and some hundred rows of a fit the second cache
constexpr int64_t kAhead = 8;  // units of k that b is fetched ahead

struct Corner {  // of c
  float* data;
  int64_t stride;
  bool accumulate;
  __mmask16 last;  // lanes of the last vector that are columns
};

template <Units kUnits>
TEMPER_AVX512_INLINE __m512 multiply_add(__m512 a, __m512 b, __m512 sum) {
  if constexpr (kUnits == Units::kPairs)
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  else
    return _mm512_fmadd_ps(a, b, sum);
}

// c [kHeight, kVectors * 16] (+)= a b over `units`.
template <Units kUnits, int kHeight, int kVectors>
TEMPER_AVX512 void run_corner(const Rows& a, const Columns& columns, int64_t units, const Corner& c) {
  __m512 sums[kHeight][kVectors];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 4
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  const float *at = a.data, *line = columns.data;
  for (int64_t k = 0; k < units; ++k, at += a.unit_step, line += columns.unit_step) {
    __m512 b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      b[v] = _mm512_maskz_loadu_ps(v + 1 == kVectors ? c.last : static_cast<__mmask16>(0xffff),
                                   line + v * kLanes);
      _mm_prefetch(line + kAhead * columns.unit_step + v * kLanes, _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kHeight; ++r) {
      const __m512 unit =
          _mm512_castsi512_ps(_mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(at + r * a.row_step))));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add<kUnits>(unit, b[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHeight; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* out = c.data + r * c.stride + v * kLanes;
      const __mmask16 mask = v + 1 == kVectors ? c.last : static_cast<__mmask16>(0xffff);
      const __m512 sum =
          c.accumulate ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sums[r][v]) : sums[r][v];
      _mm512_mask_storeu_ps(out, mask, sum);
    }
}

using RunCorner = void (*)(const Rows&, const Columns&, int64_t, const Corner&);

// [height - 1][vectors - 1]
template <Units kUnits>
constexpr auto corners() {
  return []<size_t... kAt>(std::index_sequence<kAt...>) {
    return std::array<RunCorner, sizeof...(kAt)>{
        run_corner<kUnits, static_cast<int>(kAt / 4) + 1, static_cast<int>(kAt % 4) + 1>...};
  }
  (std::make_index_sequence<kRows * 4>());
}

// One block of k: c [m, n] (+)= a b. A panel of b stays in the second cache while all rows pass by.
void run_block(Units units, const Rows& a, const Columns& b, int64_t count, const Tile& tile,
               bool accumulate) {
  static constexpr std::array<decltype(corners<Units::kFloats>()), 2> kCorners = {corners<Units::kFloats>(),
                                                                                  corners<Units::kPairs>()};
  const auto& choices = kCorners[static_cast<size_t>(units)];
  for (int64_t column = 0; column < tile.n; column += kPanel) {
    const int64_t width = std::min(kPanel, tile.n - column), vectors = (width + kLanes - 1) / kLanes;
    const auto last = static_cast<__mmask16>(0xffff >> (vectors * kLanes - width));
    for (int64_t row = 0; row < tile.m; row += kRows) {
      const int64_t height = std::min(kRows, tile.m - row);
      choices[static_cast<size_t>((height - 1) * 4 + vectors - 1)](
          {a.data + row * a.row_step, a.row_step, a.unit_step},
          {b.data + column / kPanel * b.panel_step, b.unit_step, b.panel_step}, count,
          {tile.c + row * tile.stride + column, tile.stride, accumulate, last});
    }
  }
}

Units units_of(DType products) { return products == DType::kBF16 ? Units::kPairs : Units::kFloats; }

// Blocks of k, in elements.
struct Depths {
  Depths(Units units, int64_t size) : step(kDepth * elements_of(units)), k(size) {}
  int64_t count() const { return (k + step - 1) / step; }
  int64_t at(int64_t block) const { return std::min(step, k - block * step); }
  int64_t step, k;
};

}  // namespace
}  // namespace avx512

bool has_avx512_tile(DType products) {
  static const std::vector<std::string> features = detect_cpu().features;
  const auto has = [](const char* feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  };
  static const bool floats = has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq");
  static const bool pairs = floats && has("avx512_bf16") && !has("amx_bf16");
  return products == DType::kBF16 ? pairs : floats;
}

using namespace avx512;
static_assert(Avx512Columns::kAlign == kPanel);

void avx512_tile(const Tile& tile, DType products) {
  const Units units = units_of(products);
  const Depths depths(units, tile.k);
  const int64_t columns = (tile.n + kPanel - 1) / kPanel * kPanel, most = depths.at(0);
  const TaskMemory panels(columns * units_in(units, most) + kAhead * kPanel);
  const TaskMemory rows(scratch_for_rows(units, tile.m, most));
  for (int64_t block = 0; block < depths.count(); ++block) {
    const int64_t k = block * depths.step, size = depths.at(block);
    const Columns b = pack_columns(units, tile.b.block(k, 0), size, tile.n, tile.m, panels.data());
    const Rows a = pack_rows(units, tile.a.block(0, k), tile.m, size, rows.data());
    run_block(units, a, b, units_in(units, size), tile, tile.accumulate || block > 0);
  }
}

Avx512Columns::Avx512Columns(DType products, int64_t k, int64_t columns)
    : products_(products),
      k_(k),
      columns_(columns),
      panels_((columns + kPanel - 1) / kPanel),
      blocks_(Depths(units_of(products), k).count()),
      packed_(Tensor::empty({panels_ * kPanel * units_in(units_of(products), k) + kAhead * kPanel},
                            DType::kF32, MemoryTag::kWorkspace)) {}

void Avx512Columns::pack(const Matrix& b, int64_t piece) {
  const Units units = units_of(products_);
  const Depths depths(units, k_);
  const int64_t block = piece / panels_, column = piece % panels_ * kPanel, size = depths.at(block);
  float* to = packed_.data<float>() + block * kDepth * panels_ * kPanel + column * units_in(units, size);
  pack_panel(units, b.block(block * depths.step, column), size, std::min(kPanel, columns_ - column), to);
}

void Avx512Columns::multiply(const Tile& tile, int64_t first) const {
  const Units units = units_of(products_);
  const Depths depths(units, k_);
  const TaskMemory rows(scratch_for_rows(units, tile.m, depths.at(0)));
  for (int64_t block = 0; block < depths.count(); ++block) {
    const int64_t size = depths.at(block), count = units_in(units, size);
    const Rows a = pack_rows(units, tile.a.block(0, block * depths.step), tile.m, size, rows.data());
    const float* panels = packed_.data<float>() + block * kDepth * panels_ * kPanel + first * count;
    run_block(units, a, {panels, kPanel, kPanel * count}, count, tile, tile.accumulate || block > 0);
  }
}

}  // namespace temper::backends

#else
namespace temper::backends {

bool has_avx512_tile(DType) { return false; }
void avx512_tile(const Tile&, DType) {}
Avx512Columns::Avx512Columns(DType, int64_t, int64_t) {}
void Avx512Columns::pack(const Matrix&, int64_t) {}
void Avx512Columns::multiply(const Tile&, int64_t) const {}

}  // namespace temper::backends
#endif
