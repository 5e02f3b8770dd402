#include "backends/cuda/column_sums.h"

#include "backends/gpu.h"

namespace temper::backends {
namespace {

constexpr int kSide = 32;

// A block sums 32 columns: each warp takes every 32nd row, then the warps' sums are added in order.
template <class T>
__global__ void sum_columns(const float* partial, int64_t parts, int64_t columns, T* out, bool accumulate) {
  __shared__ float shared[kSide][kSide + 1];
  const int64_t column = int64_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (int64_t row = threadIdx.y; row < parts; row += kSide) sum += partial[row * columns + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int i = 0; i < kSide; ++i) total += shared[i][threadIdx.x];
  out[column] = narrow<T>(accumulate ? widen(out[column]) + total : total);
}

}  // namespace

void add_column_sums(const Tensor& partial, const GradTarget& target) {
  const int64_t columns = partial.dim(1);
  visit_wide_or_brain(target.buffer.dtype(), [&]<class T>() {
    sum_columns<<<static_cast<unsigned>((columns + kSide - 1) / kSide), dim3(kSide, kSide), 0,
                  device::stream(partial.device())>>>(partial.data<float>(), partial.dim(0), columns,
                                                      static_cast<T*>(target.buffer.raw()), target.accumulate);
    device::check_launch("column sums");
  });
}

}  // namespace temper::backends
