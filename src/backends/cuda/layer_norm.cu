// One warp a row. What it reads twice is in the cache of its multiprocessor the second time.
#include "ops/layer_norm/layer_norm.h"

#include "backends/floats.h"
#include "backends/gpu/device_code.h"
#include "backends/gpu/sums.h"

namespace temper::backends {
namespace {

using ops::LayerNorm;

constexpr int kWarp = 32, kRowsOfBlock = kThreads / kWarp;
constexpr int64_t kParts = 128;  // of the rows, whose sums are added in order: the same on any GPU

template <class T>
struct ForwardArguments {
  const T *x, *residual, *weight, *bias;
  T *y, *sum;
  float* stats;
  int64_t rows, hidden;
  float eps;
};

// Calls use(i) for the packs of a row that are this thread's.
template <int N, class Use>
__device__ void for_packs(int64_t hidden, Use&& use) {
  for (int64_t i = int64_t{threadIdx.x} * N; i < hidden; i += kWarp * N) use(i);
}

template <class T, int N>
__global__ void normalize_rows(const __grid_constant__ ForwardArguments<T> a) {
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y;
  if (row >= a.rows) return;
  const T* x = a.x + row * a.hidden;
  float total = 0;
  for_packs<N>(a.hidden, [&](int64_t i) {
    Pack<T, N> pack = load_pack<T, N>(x + i);
    if (a.residual != nullptr) {
      const Pack<T, N> more = load_pack<T, N>(a.residual + row * a.hidden + i);
      for (int k = 0; k < N; ++k) pack.values[k] = narrow<T>(widen(pack.values[k]) + widen(more.values[k]));
      store_pack(a.sum + row * a.hidden + i, pack);
    }
    for (int k = 0; k < N; ++k) total += widen(pack.values[k]);
  });
  if (a.residual != nullptr) x = a.sum + row * a.hidden;  // each thread reads what it has written itself
  const auto count = static_cast<float>(a.hidden);
  const float mean = warp_sum(total) / count;
  float squares = 0;
  for_packs<N>(a.hidden, [&](int64_t i) {
    const Pack<T, N> pack = load_pack<T, N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float away = widen(pack.values[k]) - mean;
      squares += away * away;
    }
  });
  const float scale = 1.0f / sqrtf(warp_sum(squares) / count + a.eps);
  if (threadIdx.x == 0) {
    a.stats[2 * row] = mean;
    a.stats[2 * row + 1] = scale;
  }
  for_packs<N>(a.hidden, [&](int64_t i) {
    Pack<T, N> pack = load_pack<T, N>(x + i);
    const Pack<T, N> weight = load_pack<T, N>(a.weight + i), bias = load_pack<T, N>(a.bias + i);
    for (int k = 0; k < N; ++k)
      pack.values[k] = narrow<T>((widen(pack.values[k]) - mean) * scale * widen(weight.values[k]) +
                                 widen(bias.values[k]));
    store_pack(a.y + row * a.hidden + i, pack);
  });
}

template <class T>
struct BackwardArguments {
  const T *x, *dy, *dsum, *weight;
  const float* stats;
  T* dx;
  int64_t rows, hidden;
};

// With n = (x - mean) · scale and g = dy · weight: dx = scale (g - mean(g) - n · mean(g n)) + dsum, if any.
template <class T, int N>
__global__ void differentiate_rows(const __grid_constant__ BackwardArguments<T> a) {
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.y;
  if (row >= a.rows) return;
  const T *x = a.x + row * a.hidden, *dy = a.dy + row * a.hidden;
  const float mean = a.stats[2 * row], scale = a.stats[2 * row + 1];
  float products = 0, plain = 0;
  for_packs<N>(a.hidden, [&](int64_t i) {
    const Pack<T, N> of_x = load_pack<T, N>(x + i), of_dy = load_pack<T, N>(dy + i),
                     weight = load_pack<T, N>(a.weight + i);
    for (int k = 0; k < N; ++k) {
      const float g = widen(of_dy.values[k]) * widen(weight.values[k]);
      plain += g;
      products += g * (widen(of_x.values[k]) - mean) * scale;
    }
  });
  const auto count = static_cast<float>(a.hidden);
  const float of_all = warp_sum(plain) / count, of_products = warp_sum(products) / count;
  for_packs<N>(a.hidden, [&](int64_t i) {
    const Pack<T, N> of_x = load_pack<T, N>(x + i), weight = load_pack<T, N>(a.weight + i);
    Pack<T, N> out = load_pack<T, N>(dy + i), more = {};
    if (a.dsum != nullptr) more = load_pack<T, N>(a.dsum + row * a.hidden + i);
    for (int k = 0; k < N; ++k) {
      const float n = (widen(of_x.values[k]) - mean) * scale;
      float dx = scale * (widen(out.values[k]) * widen(weight.values[k]) - of_all - n * of_products);
      if (a.dsum != nullptr) dx += widen(more.values[k]);
      out.values[k] = narrow<T>(dx);
    }
    store_pack(a.dx + row * a.hidden + i, out);
  });
}

// One thread a column of a part of the rows: Σ dy n and Σ dy.
template <class T>
__global__ void sum_columns(const __grid_constant__ BackwardArguments<T> a, float* of_weight, float* of_bias) {
  const int64_t column = global_thread();
  if (column >= a.hidden) return;
  const int64_t rows = (a.rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * rows,
                last = min(first + rows, a.rows);
  float weight = 0, bias = 0;
  for (int64_t row = first; row < last; ++row) {
    const float dy = widen(a.dy[row * a.hidden + column]);
    weight += dy * (widen(a.x[row * a.hidden + column]) - a.stats[2 * row]) * a.stats[2 * row + 1];
    bias += dy;
  }
  of_weight[blockIdx.y * a.hidden + column] = weight;
  of_bias[blockIdx.y * a.hidden + column] = bias;
}

// Calls f.template operator()<T, lanes>() with whole packs where rows allow it.
template <class F>
void visit(const Tensor& x, F&& f) {
  visit_wide_or_brain(x.dtype(), [&]<class T>() {
    x.dim(-1) % kLanes<T> == 0 ? f.template operator()<T, kLanes<T>>() : f.template operator()<T, 1>();
  });
}

template <class T>
T* at(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr;
}

unsigned blocks_of(int64_t rows) { return static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock); }

LayerNorm::Output forward(const LayerNorm& op) {
  const int64_t hidden = op.x.dim(-1), rows = op.x.numel() / std::max<int64_t>(hidden, 1);
  const Device device = op.x.device();
  const auto empty = [&] { return Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, device); };
  LayerNorm::Output out{empty(), Tensor::empty({rows, 2}, DType::kF32, MemoryTag::kActivations, device), {}};
  if (op.residual.defined()) out.sum = empty();
  if (rows == 0) return out;
  const Tensor x = aligned(op.x), residual = aligned(op.residual), weight = aligned(op.weight),
               bias = aligned(op.bias);
  visit(x, [&]<class T, int N>() {
    const ForwardArguments<T> arguments{at<T>(x),     at<T>(residual), at<T>(weight),           at<T>(bias),
                                        at<T>(out.y), at<T>(out.sum),  out.stats.data<float>(), rows,
                                        hidden,       op.eps};
    normalize_rows<T, N><<<blocks_of(rows), dim3(kWarp, kRowsOfBlock), 0, device::stream(device)>>>(arguments);
  });
  device::check_launch("layer_norm");
  return out;
}

// Sums of the parts of the rows, [parts, hidden] float32, for the gradients of weight and bias.
struct Sums {
  Tensor weight, bias;
};
Sums empty_sums(const LayerNorm& op) {
  const auto empty = [&] {
    return Tensor::empty({kParts, op.x.dim(-1)}, DType::kF32, MemoryTag::kWorkspace, op.x.device());
  };
  return {empty(), empty()};
}

Tensor backward(const LayerNorm& op, const Tensor& stats, const Tensor& given_dy, const Tensor& given_dsum,
                const GradTarget& weight, const GradTarget& bias) {
  const int64_t hidden = op.x.dim(-1), rows = stats.dim(0);
  const Device device = op.x.device();
  const Tensor dx = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, device);
  const Tensor x = aligned(op.x), dy = aligned(given_dy), dsum = aligned(given_dsum), factors = aligned(op.weight);
  const bool wants_sums = weight.wanted() || bias.wanted();
  const Sums sums = wants_sums ? empty_sums(op) : Sums{};
  visit(x, [&]<class T, int N>() {
    const BackwardArguments<T> arguments{
        at<T>(x), at<T>(dy), at<T>(dsum), at<T>(factors), stats.data<float>(), at<T>(dx), rows, hidden};
    if (rows > 0)
      differentiate_rows<T, N><<<blocks_of(rows), dim3(kWarp, kRowsOfBlock), 0, device::stream(device)>>>(arguments);
    if (!wants_sums) return;
    const dim3 blocks(static_cast<unsigned>((hidden + kThreads - 1) / kThreads), kParts);
    sum_columns<T><<<blocks, kThreads, 0, device::stream(device)>>>(arguments, sums.weight.data<float>(),
                                                                    sums.bias.data<float>());
  });
  device::check_launch("layer_norm backward");
  if (weight.wanted()) add_column_sums(sums.weight, weight);
  if (bias.wanted()) add_column_sums(sums.bias, bias);
  return dx;
}

Tensor outline_backward(const LayerNorm& op, const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                        const GradTarget& weight, const GradTarget& bias) {
  const Sums sums = weight.wanted() || bias.wanted() ? empty_sums(op) : Sums{};
  return ops::outline<LayerNorm>().backward(op, stats, dy, dsum, weight, bias);
}

}  // namespace

void register_cuda_layer_norm() {
  ops::kernels<LayerNorm>().add("cuda", {.hardware = hardware::kGpu,
                                         .accepts = refuse_float16<LayerNorm::Signature>,
                                         .forward = forward,
                                         .backward = backward,
                                         .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
