// Reductions of rows, and rows and elements found by ids.
#include "backends/gpu/device_code.h"
#include "backends/cuda/primitives/primitives.h"

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

// Lists of rows, most of them short: a thread sums N neighbours of each of a list's rows.
template <class T, int N>
__global__ void sum_lists(const T* x, int64_t stride, const int32_t* starts, const int32_t* ids, T* y,
                          int64_t rows, int64_t width) {
  const int64_t packs = width / N;
  for (int64_t i = global_thread(); i < rows * packs; i += grid_threads()) {
    const int64_t row = i / packs, column = i % packs * N;
    const int64_t begin = starts == nullptr ? row : starts[row];
    const int64_t end = starts == nullptr ? row + 1 : starts[row + 1];
    Pack<T, N> out{};
    if (end - begin == 1) {
      out = load_pack<T, N>(x + ids[begin] * stride + column);
    } else {
      float sums[N] = {}, terms[N];
      for (int64_t k = begin; k < end; ++k) {
        widen_all(load_pack<T, N>(x + ids[k] * stride + column), terms);
        for (int n = 0; n < N; ++n) sums[n] += terms[n];
      }
      for (int n = 0; n < N; ++n) out.values[n] = narrow<T>(sums[n]);
    }
    store_pack(y + row * width + column, out);
  }
}

void sum_listed_rows(const Tensor& x, const Tensor& starts, const Tensor& ids, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t rows = y.dim(0), width = y.numel() / rows;
  const int32_t* const from = starts.defined() ? starts.data<int32_t>() : nullptr;
  visit_device_float(y.dtype(), [&]<class T>() {
    const auto launch = [&]<int N>() {
      sum_lists<T, N><<<blocks_for(y.numel(), N), kThreads, 0, device::stream(y.device())>>>(
          static_cast<const T*>(x.raw()), x.stride(0), from, ids.data<int32_t>(), static_cast<T*>(y.raw()),
          rows, width);
    };
    if (is_aligned(x) && x.stride(0) % kLanes<T> == 0 && width % kLanes<T> == 0)
      launch.template operator()<kLanes<T>>();
    else
      launch.template operator()<1>();
  });
  device::check_launch("sum_listed_rows");
}

// Of `each` ids in a row of ids.
__global__ void take(const float* x, const int32_t* ids, float* y, int64_t count, int64_t each,
                     int64_t width) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) y[i] = x[i / each * width + ids[i]];
}

// A thread has a row: its ids may be equal, and their sum has one order.
__global__ void put(const float* dy, const int32_t* ids, float* dx, int64_t rows, int64_t each, int64_t width) {
  for (int64_t row = global_thread(); row < rows; row += grid_threads())
    for (int64_t i = row * each; i < (row + 1) * each; ++i) dx[row * width + ids[i]] += dy[i];
}

void take_last(const Tensor& x, const Tensor& ids, const Tensor& y) {
  const int64_t count = y.numel();
  if (count == 0) return;
  take<<<blocks_for(count), kThreads, 0, device::stream(x.device())>>>(
      x.data<float>(), ids.data<int32_t>(), y.data<float>(), count, y.dim(-1), x.dim(-1));
  device::check_launch("take_last");
}

void take_last_gradient(const Tensor& dy, const Tensor& ids, const Tensor& dx) {
  dx.fill_zero();
  if (dy.numel() == 0) return;
  const int64_t each = dy.dim(-1), rows = dy.numel() / each;
  put<<<blocks_for(rows), kThreads, 0, device::stream(dx.device())>>>(
      dy.data<float>(), ids.data<int32_t>(), dx.data<float>(), rows, each, dx.dim(-1));
  device::check_launch("the gradient of take_last");
}

}  // namespace

void set_rows(primitives::PrimitiveFunctions& functions) {
  functions.sum_last = sum_last;
  functions.max_last = max_last;
  functions.spread_last = spread_last;
  functions.sum_listed_rows = sum_listed_rows;
  functions.take_last = take_last;
  functions.take_last_gradient = take_last_gradient;
}

}  // namespace temper::backends
