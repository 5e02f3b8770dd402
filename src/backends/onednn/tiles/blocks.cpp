#include "backends/onednn/tiles/blocks.h"

#include <algorithm>

#include "backends/floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/tiles/blocks.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

void copy(const Block& from, const Block& to, int64_t rows, int64_t size) {
  visit_wide(from.dtype, [&]<class From>() {
    visit_wide(to.dtype, [&]<class To>() {
      const From* source = static_cast<const From*>(from.data);
      To* target = static_cast<To*>(to.data);
      for (int64_t row = 0; row < rows; ++row, source += from.stride, target += to.stride)
        convert(source, target, size);
    });
  });
}

void widen_codes(const Block& codes, const float* scales, const Block& to, int64_t rows, int64_t size) {
  visit_wide(to.dtype, [&]<class To>() HWY_ATTR {
    const auto* source = static_cast<const Float8E4M3*>(codes.data);
    To* target = static_cast<To*>(to.data);
    for (int64_t row = 0; row < rows; ++row, source += codes.stride, target += to.stride) {
      const Lanes factor = fill(scales[row] * kOfCodes);
      sweep(size, [&](int64_t i, auto lanes)
                      HWY_ATTR { store(hn::Mul(load(source + i, lanes), factor), target + i, lanes); });
    }
  });
}

void add_columns(const Block& rows, int64_t count, int64_t size, float* sums) {
  visit_wide(rows.dtype, [&]<class T>() HWY_ATTR {
    const T* row = static_cast<const T*>(rows.data);
    for (int64_t r = 0; r < count; ++r, row += rows.stride)
      sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
        store(hn::Add(load(sums + i, lanes), load(row + i, lanes)), sums + i, lanes);
      });
  });
}

// out[r][c] = x row r · weight row c. Four columns at a time keep enough sums in flight to hide latency.
template <int kRows, int kColumns, class T>
HWY_INLINE void dots(const float* x, int64_t x_stride, const T* weight, int64_t stride, int64_t size,
                     float (*out)[kColumns]) {
  Lanes sums[kRows][kColumns];
  for (auto& row : sums)
    for (Lanes& sum : row) sum = none();
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    Lanes columns[kColumns];
    for (int c = 0; c < kColumns; ++c) columns[c] = load(weight + c * stride + i, lanes);
    for (int r = 0; r < kRows; ++r) {
      const Lanes value = load(x + r * x_stride + i, lanes);
      for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::MulAdd(value, columns[c], sums[r][c]);
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) out[r][c] = total(sums[r][c]);
}

// What becomes of a sum. Factors are powers of two: sums of scaled codes would have the same bits. By value
// and of one dtype: the compiler keeps it in registers.
template <class Y>
struct Finish {
  const float* scales;  // of codes
  const Y* bias;        // null: none
  Y* y;
  int64_t stride;

  HWY_INLINE void operator()(float sum, int64_t row, int64_t output) const {
    if (scales != nullptr) sum *= scales[output] * kOfCodes;
    if (bias != nullptr) sum += static_cast<float>(bias[output]);
    y[row * stride + output] = Y(sum);
  }
};

template <int kRows, class T, class Y>
void dot_few(const RowDots& all, int64_t row, Finish<Y> finish, int64_t begin, int64_t end) {
  constexpr int kColumns = 4;
  const int64_t x_stride = all.x.stride, stride = all.weight.stride, size = all.size;
  const float* from = static_cast<const float*>(all.x.data) + row * x_stride;
  const T* weight = static_cast<const T*>(all.weight.data);
  int64_t o = begin;
  for (; o + kColumns <= end; o += kColumns) {
    if (stride > size) fetch_ahead(weight + (o + 2 * kColumns) * stride, kColumns, size, stride);
    float out[kRows][kColumns];
    dots<kRows, kColumns>(from, x_stride, weight + o * stride, stride, size, out);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) finish(out[r][c], row + r, o + c);
  }
  for (; o < end; ++o) {
    float out[kRows][1];
    dots<kRows, 1>(from, x_stride, weight + o * stride, stride, size, out);
    for (int r = 0; r < kRows; ++r) finish(out[r][0], row + r, o);
  }
}

template <class T, class Y>
void dot(const RowDots& all, int64_t begin, int64_t end) {
  const bool biased = all.bias != nullptr && all.bias->defined();
  const Finish<Y> finish{all.scales, biased ? all.bias->data<Y>() : nullptr, static_cast<Y*>(all.y.data),
                         all.y.stride};
  int64_t row = 0;
  for (; row + 4 <= all.rows; row += 4) dot_few<4, T>(all, row, finish, begin, end);
  if (all.rows - row == 3) dot_few<3, T>(all, row, finish, begin, end);
  if (all.rows - row == 2) dot_few<2, T>(all, row, finish, begin, end);
  if (all.rows - row == 1) dot_few<1, T>(all, row, finish, begin, end);
}

void dot_any(const RowDots& all, int64_t begin, int64_t end) {
  visit_wide(all.y.dtype, [&]<class Y>() {
    if (all.scales != nullptr) return dot<Float8E4M3, Y>(all, begin, end);
    visit_wide(all.weight.dtype, [&]<class T>() { dot<T, Y>(all, begin, end); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {
HWY_EXPORT(copy);
HWY_EXPORT(add_columns);
HWY_EXPORT(widen_codes);
HWY_EXPORT(dot_any);
}  // namespace

void copy_block(const Block& from, const Block& to, int64_t rows, int64_t size) {
  HWY_DYNAMIC_DISPATCH(copy)(from, to, rows, size);
}

void copy_codes(const Block& codes, const float* scales, const Block& to, int64_t rows, int64_t size) {
  HWY_DYNAMIC_DISPATCH(widen_codes)(codes, scales, to, rows, size);
}

WideBlock::WideBlock(const Block& block, int64_t rows, int64_t size, bool filled)
    : block_(block), wide_(block), rows_(rows), size_(size) {
  if (block.dtype == DType::kF32) return;
  copy_ = Tensor::empty({rows, size}, DType::kF32, MemoryTag::kWorkspace);
  wide_ = block_of(copy_);
  if (filled) copy_block(block, wide_, rows, size);
}

void WideBlock::store() const {
  if (copy_.defined()) copy_block(wide_, block_, rows_, size_);
}

void add_column_sums(const Block& rows, int64_t count, int64_t size, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_columns)(rows, count, size, sums);
}

void dot_rows(const RowDots& dots, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(dot_any)(dots, begin, end);
}

}  // namespace temper::backends
#endif  // HWY_ONCE
