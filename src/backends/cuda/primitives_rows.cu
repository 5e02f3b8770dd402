// Reductions of rows, and rows and elements found by ids.
#include "backends/gpu.h"
#include "backends/cuda/primitives.h"

namespace temper::backends {
namespace {

// One block for each row, up to what fills any GPU many times over.
unsigned blocks_of_rows(int64_t rows) { return static_cast<unsigned>(std::min<int64_t>(rows, 1 << 20)); }

// Joins a block's values two by two, always in the same order; the result is in every thread.
template <class T, class Join>
__device__ T block_reduce(T value, Join join) {
  __shared__ T values[kThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] = join(values[threadIdx.x], values[threadIdx.x + half]);
  }
  __syncthreads();
  return values[0];
}

// In double, as on the CPU.
__global__ void sum_rows(const float* x, float* y, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[row * width + i];
    sum = block_reduce(sum, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) y[row] = static_cast<float>(sum);
  }
}

__global__ void max_rows(const float* x, float* y, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float largest = x[row * width];
    for (int64_t i = threadIdx.x; i < width; i += kThreads) largest = fmaxf(largest, x[row * width + i]);
    largest = block_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
    if (threadIdx.x == 0) y[row] = largest;
  }
}

__global__ void spread_rows(const float* x, float* y, int64_t count, int64_t width) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) y[i] = x[i / width];
}

void sum_last(const Tensor& x, const Tensor& y) {
  const int64_t rows = y.numel();
  if (rows == 0) return;
  sum_rows<<<blocks_of_rows(rows), kThreads, 0, device::stream(x.device())>>>(
      x.data<float>(), y.data<float>(), rows, x.dim(-1));
  device::check_launch("sum_last");
}

void max_last(const Tensor& x, const Tensor& y) {
  const int64_t rows = y.numel();
  if (rows == 0) return;
  max_rows<<<blocks_of_rows(rows), kThreads, 0, device::stream(x.device())>>>(
      x.data<float>(), y.data<float>(), rows, x.dim(-1));
  device::check_launch("max_last");
}

void spread_last(const Tensor& x, const Tensor& y) {
  const int64_t count = y.numel();
  if (count == 0) return;
  spread_rows<<<blocks_for(count), kThreads, 0, device::stream(x.device())>>>(
      x.data<float>(), y.data<float>(), count, y.dim(-1));
  device::check_launch("spread_last");
}

template <class T>
__global__ void copy_chosen_rows(const T* table, const int32_t* ids, T* y, int64_t count, int64_t width) {
  for (int64_t i = global_thread(); i < count; i += grid_threads())
    y[i] = table[ids[i / width] * width + i % width];
}

void gather_rows(const Tensor& table, const Tensor& ids, const Tensor& y) {
  const int64_t count = y.numel();
  if (count == 0) return;
  const auto launch = [&]<class T>() {
    copy_chosen_rows<<<blocks_for(count), kThreads, 0, device::stream(y.device())>>>(
        static_cast<const T*>(table.raw()), ids.data<int32_t>(), static_cast<T*>(y.raw()), count, y.dim(1));
  };
  if (size_of(y.dtype()) == 4)
    launch.template operator()<uint32_t>();
  else
    launch.template operator()<uint16_t>();
  device::check_launch("gather_rows");
}

// A block owns a row of the table, looks through the ids for it, and adds in their order.
__global__ void sum_equal_ids(const float* dy, const int32_t* ids, float* dtable, int64_t count, int64_t rows,
                              int64_t width) {
  __shared__ int32_t found[kThreads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* const sums = dtable + row * width;
    for (int64_t c = threadIdx.x; c < width; c += kThreads) sums[c] = 0;
    for (int64_t first = 0; first < count; first += kThreads) {
      const int64_t i = first + threadIdx.x;
      const bool mine = i < count && ids[i] == row;
      found[threadIdx.x] = mine;
      if (__syncthreads_or(mine))
        for (int k = 0; k < kThreads; ++k)
          if (found[k])
            for (int64_t c = threadIdx.x; c < width; c += kThreads) sums[c] += dy[(first + k) * width + c];
      __syncthreads();
    }
  }
}

void gather_rows_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dtable) {
  if (dtable.numel() == 0) return;
  sum_equal_ids<<<blocks_of_rows(dtable.dim(0)), kThreads, 0, device::stream(dy.device())>>>(
      dy.data<float>(), ids.data<int32_t>(), dtable.data<float>(), ids.numel(), dtable.dim(0), dtable.dim(1));
  device::check_launch("the gradient of gather_rows");
}

__global__ void take(const float* x, const int32_t* ids, float* y, int64_t rows, int64_t width) {
  for (int64_t row = global_thread(); row < rows; row += grid_threads()) y[row] = x[row * width + ids[row]];
}

__global__ void put(const float* dy, const int32_t* ids, float* dx, int64_t rows, int64_t width) {
  for (int64_t row = global_thread(); row < rows; row += grid_threads()) dx[row * width + ids[row]] = dy[row];
}

void take_last(const Tensor& x, const Tensor& ids, const Tensor& y) {
  const int64_t rows = y.numel();
  if (rows == 0) return;
  take<<<blocks_for(rows), kThreads, 0, device::stream(x.device())>>>(x.data<float>(), ids.data<int32_t>(),
                                                                      y.data<float>(), rows, x.dim(-1));
  device::check_launch("take_last");
}

void take_last_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dx) {
  const int64_t rows = dy.numel();
  dx.fill_zero();
  if (rows == 0) return;
  put<<<blocks_for(rows), kThreads, 0, device::stream(dx.device())>>>(dy.data<float>(), ids.data<int32_t>(),
                                                                      dx.data<float>(), rows, dx.dim(-1));
  device::check_launch("the gradient of take_last");
}

}  // namespace

void set_rows(primitives::PrimitiveFunctions& functions) {
  functions.sum_last = sum_last;
  functions.max_last = max_last;
  functions.spread_last = spread_last;
  functions.gather_rows = gather_rows;
  functions.gather_rows_gradient = gather_rows_gradient;
  functions.take_last = take_last;
  functions.take_last_gradient = take_last_gradient;
}

}  // namespace temper::backends
