// Functions of one and of two tensors, element by element.
#include "backends/gpu/device_code.h"
#include "backends/cuda/primitives/primitives.h"
#include "primitives/broadcast.h"

namespace temper::backends {
namespace {

using primitives::Binary;
using primitives::Broadcast;
using primitives::Unary;

template <class F>
__global__ void apply(F f, const float* x, float* y, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) y[i] = f.value(x[i]);
}

template <class F>
__global__ void apply_gradient(F f, const float* x, const float* y, const float* dy, float* dx,
                               int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) dx[i] = dy[i] * f.slope(x[i], y[i]);
}

void unary(const Unary& function, const Tensor& x, const Tensor& y) {
  const int64_t count = x.numel();
  if (count == 0) return;
  std::visit(
      [&](auto f) {
        apply<<<blocks_for(count), kThreads, 0, device::stream(x.device())>>>(f, x.data<float>(),
                                                                              y.data<float>(), count);
      },
      function);
  device::check_launch("a function of one tensor");
}

void unary_gradient(const Unary& function, const Tensor& x, const Tensor& y, const Tensor& dy,
                    const Tensor& dx) {
  const int64_t count = x.numel();
  if (count == 0) return;
  std::visit(
      [&](auto f) {
        apply_gradient<<<blocks_for(count), kThreads, 0, device::stream(x.device())>>>(
            f, x.data<float>(), y.data<float>(), dy.data<float>(), dx.data<float>(), count);
      },
      function);
  device::check_launch("the gradient of a function of one tensor");
}

// The dimensions of a broadcast, those of one side first, then those that it was stretched over.
struct Layout {
  int own = 0, ndim = 0;  // dimensions of the side, and all
  int64_t sizes[Shape::kMaxDims] = {};
  int64_t a_steps[Shape::kMaxDims] = {}, b_steps[Shape::kMaxDims] = {}, y_steps[Shape::kMaxDims] = {};
};

Layout layout_of(const Broadcast& shape, const int64_t* side_steps) {
  int64_t y_steps[Shape::kMaxDims] = {};
  int64_t size = 1;
  for (int d = shape.ndim - 1; d >= 0; --d) {
    y_steps[d] = size;
    size *= shape.sizes[d];
  }
  Layout layout;
  for (const bool stretched : {false, true}) {
    for (int d = 0; d < shape.ndim; ++d) {
      if ((side_steps[d] == 0) != stretched) continue;
      layout.sizes[layout.ndim] = shape.sizes[d];
      layout.a_steps[layout.ndim] = shape.a_steps[d];
      layout.b_steps[layout.ndim] = shape.b_steps[d];
      layout.y_steps[layout.ndim++] = y_steps[d];
    }
    if (!stretched) layout.own = layout.ndim;
  }
  return layout;
}

struct Place {
  int64_t a = 0, b = 0, y = 0;
};

// Adds where the element `index` of the dimensions [first, last) lies.
__device__ inline Place step_to(Place from, const Layout& layout, int first, int last, int64_t index) {
  for (int d = last - 1; d >= first; --d) {
    const int64_t at = d > first ? index % layout.sizes[d] : index;
    if (d > first) index /= layout.sizes[d];
    from.a += at * layout.a_steps[d];
    from.b += at * layout.b_steps[d];
    from.y += at * layout.y_steps[d];
  }
  return from;
}

template <class F>
__global__ void combine(F f, const float* a, const float* b, float* y, Layout layout, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const Place at = step_to({}, layout, 0, layout.ndim, i);
    y[i] = f.value(a[at.a], b[at.b]);
  }
}

struct Sources {
  const float *a, *b, *dy;
};

template <bool kOfA, class F>
__device__ inline float term(F f, const Sources& from, const Place& at) {
  const float x = from.a[at.a], y = from.b[at.b];
  return from.dy[at.y] * (kOfA ? f.slope_a(x, y) : f.slope_b(x, y));
}

// A thread sums what one element was stretched over.
template <bool kOfA, class F>
__global__ void gradient_by_threads(F f, Sources from, float* sums, Layout layout, int64_t count,
                                    int64_t terms) {
  for (int64_t i = global_thread(); i < count; i += grid_threads()) {
    const Place own = step_to({}, layout, 0, layout.own, i);
    float sum = 0;
    for (int64_t t = 0; t < terms; ++t)
      sum += term<kOfA>(f, from, step_to(own, layout, layout.own, layout.ndim, t));
    sums[i] = sum;
  }
}

// A block does.
template <bool kOfA, class F>
__global__ void gradient_by_blocks(F f, Sources from, float* sums, Layout layout, int64_t count,
                                   int64_t terms) {
  __shared__ float shared[32];
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const Place own = step_to({}, layout, 0, layout.own, i);
    float sum = 0;
    for (int64_t t = threadIdx.x; t < terms; t += blockDim.x)
      sum += term<kOfA>(f, from, step_to(own, layout, layout.own, layout.ndim, t));
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) sums[i] = sum;
  }
}

void binary(const Binary& function, const Tensor& a, const Tensor& b, const Tensor& y) {
  const int64_t count = y.numel();
  if (count == 0) return;
  const int64_t no_side[Shape::kMaxDims] = {};
  const Layout layout = layout_of(primitives::broadcast(y.shape(), a.shape(), b.shape()), no_side);
  std::visit(
      [&](auto f) {
        combine<<<blocks_for(count), kThreads, 0, device::stream(y.device())>>>(
            f, a.data<float>(), b.data<float>(), y.data<float>(), layout, count);
      },
      function);
  device::check_launch("a function of two tensors");
}

template <bool kOfA>
void gradient_of(const Binary& function, const Sources& from, const Broadcast& shape, int64_t elements,
                 const Tensor& sums) {
  const int64_t count = sums.numel();
  if (count == 0) return;
  if (elements == 0) return sums.fill_zero();
  const Layout layout = layout_of(shape, kOfA ? shape.a_steps : shape.b_steps);
  const int64_t terms = elements / count;
  const cudaStream_t stream = device::stream(sums.device());
  std::visit(
      [&](auto f) {
        if (terms < kThreads / 8)
          gradient_by_threads<kOfA>
              <<<blocks_for(count), kThreads, 0, stream>>>(f, from, sums.data<float>(), layout, count, terms);
        else
          gradient_by_blocks<kOfA><<<blocks_for(count * kThreads), kThreads, 0, stream>>>(
              f, from, sums.data<float>(), layout, count, terms);
      },
      function);
  device::check_launch("the gradient of a function of two tensors");
}

void binary_gradient(const Binary& function, const Tensor& a, const Tensor& b, const Tensor& dy,
                     const Tensor& da, const Tensor& db) {
  const Sources from{a.data<float>(), b.data<float>(), dy.data<float>()};
  const Broadcast shape = primitives::broadcast(dy.shape(), a.shape(), b.shape());
  if (da.defined()) gradient_of<true>(function, from, shape, dy.numel(), da);
  if (db.defined()) gradient_of<false>(function, from, shape, dy.numel(), db);
}

}  // namespace

void set_elementwise(primitives::PrimitiveFunctions& functions) {
  functions.unary = unary;
  functions.unary_gradient = unary_gradient;
  functions.binary = binary;
  functions.binary_gradient = binary_gradient;
}

}  // namespace temper::backends
