#include "backends/simd/row_sums.h"

#include <algorithm>

#include "backends/cpu/float32_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

namespace temper::backends {

int64_t RowSums::grain_of(int64_t rows, int64_t row_size) {
  constexpr int64_t kMaxPieces = 64;
  return std::max(rows_per_task(row_size), (rows + kMaxPieces - 1) / kMaxPieces);
}

int64_t RowSums::floats(int64_t rows, int64_t row_size, int64_t width) {
  const int64_t grain = grain_of(rows, row_size);
  return (rows + grain - 1) / grain * width;
}

RowSums::RowSums(int64_t rows, int64_t row_size, int64_t width)
    : width_(width), grain_(rows_per_task(row_size)) {
  if (width == 0) return;
  grain_ = grain_of(rows, row_size);
  pieces_ = (rows + grain_ - 1) / grain_;
  partial_ = Tensor::empty({pieces_, width}, DType::kF32, MemoryTag::kWorkspace);
}

float* RowSums::piece(int64_t begin) const {
  if (!partial_.defined()) return nullptr;
  float* sums = partial_.data<float>() + begin / grain_ * width_;
  std::fill_n(sums, width_, 0.0f);
  return sums;
}

void RowSums::add_to(const GradTarget& target, int64_t first) const {
  if (!target.wanted()) return;
  parallel_ranges(target.buffer.numel(), 1024, [&](int64_t begin, int64_t end) {
    sum_in_float32(target, begin, end - begin, [&](float* sums) {
      const float* part = partial_.data<float>() + first + begin;
      for (int64_t piece = 0; piece < pieces_; ++piece, part += width_)
        for (int64_t i = 0; i < end - begin; ++i) sums[i] += part[i];
    });
  });
}

}  // namespace temper::backends
