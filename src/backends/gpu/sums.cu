#include "backends/gpu/sums.h"

#include "backends/gpu/device_code.h"

namespace temper::backends {
namespace {

constexpr int kSide = 32;
constexpr int64_t kRowsPerPart = 64;

// A block sums 32 columns: each warp takes every 32nd row, then the warps' sums are added in order.
template <class T>
__global__ void sum_columns(const float* partial, int64_t parts, int64_t columns, T* out, bool accumulate) {
  __shared__ float shared[kSide][kSide + 1];
  const int64_t column = int64_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0;
  if (column < columns)
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < parts; row += kSide) sum += partial[row * columns + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int i = 0; i < kSide; ++i) total += shared[i][threadIdx.x];
  out[column] = narrow<T>(accumulate ? widen(out[column]) + total : total);
}

// A block of `kRowsPerPart` rows and 256 columns.
template <class T>
__global__ void sum_part(const T* rows, int64_t count, int64_t columns, float* partial) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const int64_t begin = int64_t{blockIdx.y} * kRowsPerPart, end = min(begin + kRowsPerPart, count);
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) sum += widen(rows[row * columns + column]);
  partial[blockIdx.y * columns + column] = sum;
}

}  // namespace

void add_row_sums(const Tensor& rows, const GradTarget& target) {
  const int64_t count = rows.dim(0), columns = rows.dim(1), parts = (count + kRowsPerPart - 1) / kRowsPerPart;
  const Device device = rows.device();
  const Tensor partial = Tensor::empty({parts, columns}, DType::kF32, MemoryTag::kWorkspace, device);
  if (only_counts(device)) return;
  if (parts > 0 && columns > 0)
    visit_device_float(rows.dtype(), [&]<class T>() {
      const dim3 blocks(static_cast<unsigned>((columns + kThreads - 1) / kThreads), static_cast<unsigned>(parts));
      sum_part<<<blocks, kThreads, 0, device::stream(device)>>>(static_cast<const T*>(rows.raw()), count, columns,
                                                                partial.data<float>());
    });
  device::check_launch("row sums");
  add_column_sums(partial, target);
}

void add_column_sums(const Tensor& partial, const GradTarget& target) {
  const int64_t columns = partial.dim(1);
  if (columns == 0) return;
  visit_wide_or_brain(target.buffer.dtype(), [&]<class T>() {
    sum_columns<<<static_cast<unsigned>((columns + kSide - 1) / kSide), dim3(kSide, kSide), 0,
                  device::stream(partial.device())>>>(partial.data<float>(), partial.dim(0), columns,
                                                      static_cast<T*>(target.buffer.raw()), target.accumulate);
    device::check_launch("column sums");
  });
}

}  // namespace temper::backends
