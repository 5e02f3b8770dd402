#include "backends/simd/row_sums.h"

#include <algorithm>

#include "backends/simd/rows.h"
#include "base/threads.h"

namespace temper::backends {

RowSums::RowSums(int64_t rows, int64_t row_size, int64_t width)
    : width_(width), grain_(rows_per_task(row_size)) {
  if (width == 0) return;
  constexpr int64_t kMaxPieces = 64;
  grain_ = std::max(grain_, (rows + kMaxPieces - 1) / kMaxPieces);
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
  float* out = target.buffer.data<float>();
  const int64_t size = target.buffer.numel();
  if (!target.accumulate) std::fill_n(out, size, 0.0f);
  const float* sums = partial_.data<float>() + first;
  parallel_ranges(size, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t piece = 0; piece < pieces_; ++piece)
      for (int64_t i = begin; i < end; ++i) out[i] += sums[piece * width_ + i];
  });
}

}  // namespace temper::backends
