#include "backends/onednn/blocks.h"

#include <algorithm>

#include "backends/floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/onednn/blocks.cpp"
#include <hwy/foreach_target.h>

#include "backends/lanes-inl.h"

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

HWY_INLINE void put(const Block& y, int64_t index, float value) {
  if (y.dtype == DType::kF32)
    static_cast<float*>(y.data)[index] = value;
  else
    static_cast<BFloat16*>(y.data)[index] = BFloat16(value);
}

template <int kRows, class T>
void dot_few(const Block& x, int64_t row, const Block& weight, int64_t size, const Tensor& bias,
             const Block& y, int64_t begin, int64_t end) {
  constexpr int kColumns = 4;
  const float* from = static_cast<const float*>(x.data) + row * x.stride;
  const T* rows = static_cast<const T*>(weight.data);
  const auto finish = [&](float sum, int r, int64_t o) {
    put(y, (row + r) * y.stride + o, bias.defined() ? sum + static_cast<float>(bias.data<T>()[o]) : sum);
  };
  int64_t o = begin;
  for (; o + kColumns <= end; o += kColumns) {
    if (weight.stride > size)
      fetch_ahead(rows + (o + 2 * kColumns) * weight.stride, kColumns, size, weight.stride);
    float out[kRows][kColumns];
    dots<kRows, kColumns>(from, x.stride, rows + o * weight.stride, weight.stride, size, out);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) finish(out[r][c], r, o + c);
  }
  for (; o < end; ++o) {
    float out[kRows][1];
    dots<kRows, 1>(from, x.stride, rows + o * weight.stride, weight.stride, size, out);
    for (int r = 0; r < kRows; ++r) finish(out[r][0], r, o);
  }
}

void dot(const Block& x, int64_t rows, const Block& weight, int64_t size, const Tensor& bias, const Block& y,
         int64_t begin, int64_t end) {
  visit_wide(weight.dtype, [&]<class T>() {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) dot_few<4, T>(x, row, weight, size, bias, y, begin, end);
    if (rows - row == 3) dot_few<3, T>(x, row, weight, size, bias, y, begin, end);
    if (rows - row == 2) dot_few<2, T>(x, row, weight, size, bias, y, begin, end);
    if (rows - row == 1) dot_few<1, T>(x, row, weight, size, bias, y, begin, end);
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
HWY_EXPORT(dot);
}  // namespace

void copy_block(const Block& from, const Block& to, int64_t rows, int64_t size) {
  HWY_DYNAMIC_DISPATCH(copy)(from, to, rows, size);
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

void dot_rows(const Block& x, int64_t rows, const Block& weight, int64_t size, const Tensor& bias,
              const Block& y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(dot)(x, rows, weight, size, bias, y, begin, end);
}

}  // namespace temper::backends
#endif  // HWY_ONCE
