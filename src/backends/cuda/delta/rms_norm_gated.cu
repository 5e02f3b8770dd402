// A group of lanes has a row, so that every byte is read and written once.
#include "backends/gpu/sums.h"
#include "backends/gpu/wide_packs.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"

namespace temper::backends {
namespace {

using ops::RmsNormGated;

constexpr unsigned kBackwardBlocks = 1056;  // fixed, so that sums do not depend on the GPU
constexpr int kMostPacks = 4;               // of a lane

// `lanes` adjacent lanes share a row: each has kPacks times N elements, `lanes` packs apart.
struct Layout {
  int elements, packs, lanes;
};
Layout layout_of(int64_t dim, int full) {
  Layout layout{dim % full == 0 ? full : 1, 1, 1};
  const int64_t pieces = dim / layout.elements;
  while (layout.lanes < 32 && layout.lanes < pieces) layout.lanes *= 2;
  while (int64_t{layout.packs} * layout.lanes < pieces) layout.packs *= 2;
  return layout;
}

template <class T, class W>
struct Arguments {
  const T *x, *gate, *dy;
  const W* weight;
  float* inv_rms;
  T *out, *dgate;   // y, or dx
  float* partial;   // [blocks, dim], or null
  int64_t rows, gate_stride;  // of tokens
  int heads, dim, lanes;
  float eps;

  __device__ int64_t gate_row(int64_t row) const { return row / heads * gate_stride + row % heads * dim; }
};

// The sum over the lanes of a row, in all of them.
__device__ float over_lanes(float value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// Of a thread: its row in a round, and where its elements are.
template <int N>
struct Place {
  int in_block, rows_per_block, lane, lanes;

  __device__ explicit Place(int lanes)
      : in_block(static_cast<int>(threadIdx.x) / lanes),
        rows_per_block(kThreads / lanes),
        lane(static_cast<int>(threadIdx.x) % lanes),
        lanes(lanes) {}
  __device__ int column(int pack) const { return (pack * lanes + lane) * N; }
};

template <class T, class W, int N, int kPacks>
__global__ void __launch_bounds__(kThreads) forward_rows(const __grid_constant__ Arguments<T, W> a) {
  const Place<N> at(a.lanes);
  const int64_t row = int64_t{blockIdx.x} * at.rows_per_block + at.in_block;
  const bool exists = row < a.rows;
  float x[kPacks][N], gate[kPacks][N], squares = 0;
  for (int p = 0; p < kPacks; ++p) {
    const int i = at.column(p);
    load_or_zero<T, N>(x[p], exists && i < a.dim ? a.x + row * a.dim + i : nullptr);
    load_or_zero<T, N>(gate[p], exists && i < a.dim ? a.gate + a.gate_row(row) + i : nullptr);
    for (int k = 0; k < N; ++k) squares += x[p][k] * x[p][k];
  }
  const float scale = 1 / sqrtf(over_lanes(squares, at.lanes) / static_cast<float>(a.dim) + a.eps);
  if (!exists) return;
  if (at.lane == 0) a.inv_rms[row] = scale;
  for (int p = 0; p < kPacks; ++p) {
    const int i = at.column(p);
    if (i >= a.dim) continue;
    for (int k = 0; k < N; ++k)
      x[p][k] = x[p][k] * scale * widen(a.weight[i + k]) * (gate[p][k] * logistic(gate[p][k]));
    store_narrow<T, N>(a.out + row * a.dim + i, x[p]);
  }
}

// The block's sums, row after row.
template <int N, int kPacks>
__device__ void store_partial(const float (&sums)[kPacks][N], float* to, int dim, const Place<N>& at) {
  extern __shared__ float shared[];  // [rows of a round, dim]
  for (int p = 0; p < kPacks; ++p)
    for (int k = 0; k < N; ++k)
      if (at.column(p) < dim) shared[at.in_block * dim + at.column(p) + k] = sums[p][k];
  __syncthreads();
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    float sum = 0;
    for (int row = 0; row < at.rows_per_block; ++row) sum += shared[row * dim + i];
    to[i] = sum;
  }
}

// With n = x · inv_rms, s the logistic of the gate and t = dy · gate · s · weight:
// dx = inv_rms (t - n · mean(t n)), dgate = dy · n · weight · s (1 + gate (1 - s)), dweight = Σ dy · n · gate · s.
template <class T, class W, int N, int kPacks>
__global__ void __launch_bounds__(kThreads) backward_rows(const __grid_constant__ Arguments<T, W> a) {
  const Place<N> at(a.lanes);
  float sums[kPacks][N] = {}, weight[kPacks][N];
  for (int p = 0; p < kPacks; ++p)
    for (int k = 0; k < N; ++k) weight[p][k] = at.column(p) < a.dim ? widen(a.weight[at.column(p) + k]) : 0.f;
  const int64_t step = int64_t{gridDim.x} * at.rows_per_block;
  for (int64_t first = int64_t{blockIdx.x} * at.rows_per_block; first < a.rows; first += step) {
    const int64_t row = first + at.in_block;
    const bool exists = row < a.rows;
    float n[kPacks][N], gate[kPacks][N], dy[kPacks][N], products = 0;
    const float scale = exists ? a.inv_rms[row] : 0.f;
    for (int p = 0; p < kPacks; ++p) {
      const int i = at.column(p);
      const bool there = exists && i < a.dim;
      load_or_zero<T, N>(n[p], there ? a.x + row * a.dim + i : nullptr);
      load_or_zero<T, N>(gate[p], there ? a.gate + a.gate_row(row) + i : nullptr);
      load_or_zero<T, N>(dy[p], there ? a.dy + row * a.dim + i : nullptr);
    }
    for (int p = 0; p < kPacks; ++p)
      for (int k = 0; k < N; ++k) {
        const float s = logistic(gate[p][k]), silu = gate[p][k] * s, own = dy[p][k];
        n[p][k] *= scale;
        gate[p][k] = own * n[p][k] * weight[p][k] * s * (1 + gate[p][k] * (1 - s));
        sums[p][k] += own * n[p][k] * silu;
        dy[p][k] = own * silu * weight[p][k];
        products += dy[p][k] * n[p][k];
      }
    const float mean = over_lanes(products, at.lanes) / static_cast<float>(a.dim);
    for (int p = 0; p < kPacks; ++p) {
      const int i = at.column(p);
      if (!exists || i >= a.dim) continue;
      for (int k = 0; k < N; ++k) dy[p][k] = scale * (dy[p][k] - n[p][k] * mean);
      store_narrow<T, N>(a.out + row * a.dim + i, dy[p]);
      store_narrow<T, N>(a.dgate + row * a.dim + i, gate[p]);
    }
  }
  if (a.partial != nullptr) store_partial<N, kPacks>(sums, a.partial + int64_t{blockIdx.x} * a.dim, a.dim, at);
}

// Calls f.template operator()<N, kPacks>().
template <class T, class F>
void visit_layout(const Layout& layout, F&& f) {
  const auto packs = [&]<int N>() {
    if (layout.packs == 1) return f.template operator()<N, 1>();
    if (layout.packs == 2) return f.template operator()<N, 2>();
    f.template operator()<N, kMostPacks>();
  };
  layout.elements == 1 ? packs.template operator()<1>() : packs.template operator()<kLanes<T>>();
}
// Calls f.template operator()<T, W>() with the dtypes of x and of the weight.
template <class F>
void visit_types(const RmsNormGated& op, F&& f) {
  visit_wide_or_brain(op.x.dtype(), [&]<class T>() {
    op.weight.dtype() == DType::kF32 ? f.template operator()<T, float>() : f.template operator()<T, T>();
  });
}

// Heads of a token one behind the other, tokens at any distance that keeps packs aligned.
Tensor with_aligned_rows(const Tensor& x) {
  const bool heads = x.stride(2) == 1 && x.stride(1) == x.dim(2);
  return heads && is_aligned(x) && x.stride(0) % (16 / size_of(x.dtype())) == 0 ? x : x.clone();
}

template <class T, class W>
Arguments<T, W> arguments_of(const RmsNormGated& op, const Tensor& x, const Tensor& gate, const Layout& layout) {
  return {.x = static_cast<const T*>(x.raw()),
          .gate = static_cast<const T*>(gate.raw()),
          .weight = static_cast<const W*>(op.weight.raw()),
          .rows = x.dim(0) * x.dim(1),
          .gate_stride = gate.stride(0),
          .heads = static_cast<int>(x.dim(1)),
          .dim = static_cast<int>(x.dim(2)),
          .lanes = layout.lanes,
          .eps = op.eps};
}
Tensor compact_like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), MemoryTag::kActivations, x.device());
}

RmsNormGated::Output forward(const RmsNormGated& op) {
  const Device device = op.x.device();
  const RmsNormGated::Output out{
      compact_like(op.x), Tensor::empty({op.x.dim(0), op.x.dim(1)}, DType::kF32, MemoryTag::kActivations, device)};
  if (op.x.numel() == 0) return out;
  const Tensor x = aligned(op.x), gate = with_aligned_rows(op.gate);
  visit_types(op, [&]<class T, class W>() {
    const Layout layout = layout_of(op.x.dim(2), kLanes<T>);
    Arguments<T, W> arguments = arguments_of<T, W>(op, x, gate, layout);
    arguments.inv_rms = out.inv_rms.data<float>();
    arguments.out = static_cast<T*>(out.y.raw());
    const int64_t each = kThreads / layout.lanes;
    const auto blocks = static_cast<unsigned>((arguments.rows + each - 1) / each);
    visit_layout<T>(layout, [&]<int N, int kPacks>() {
      forward_rows<T, W, N, kPacks><<<blocks, kThreads, 0, device::stream(device)>>>(arguments);
    });
  });
  device::check_launch("rms_norm_gated");
  return out;
}

Tensor partial_sums(const RmsNormGated& op, const GradTarget& weight) {
  if (!weight.wanted()) return {};
  return Tensor::empty({int64_t{kBackwardBlocks}, op.x.dim(2)}, DType::kF32, MemoryTag::kWorkspace, op.x.device());
}

RmsNormGated::Grads backward(const RmsNormGated& op, const Tensor& inv_rms, const Tensor& given_dy,
                             const GradTarget& weight) {
  const Device device = op.x.device();
  const RmsNormGated::Grads grads{compact_like(op.x), compact_like(op.x)};
  const Tensor x = aligned(op.x), gate = with_aligned_rows(op.gate), dy = aligned(given_dy),
               partial = partial_sums(op, weight);
  visit_types(op, [&]<class T, class W>() {
    const Layout layout = layout_of(op.x.dim(2), kLanes<T>);
    Arguments<T, W> arguments = arguments_of<T, W>(op, x, gate, layout);
    arguments.dy = static_cast<const T*>(dy.raw());
    arguments.inv_rms = inv_rms.data<float>();
    arguments.out = static_cast<T*>(grads.x.raw());
    arguments.dgate = static_cast<T*>(grads.gate.raw());
    arguments.partial = partial.defined() ? partial.data<float>() : nullptr;
    const size_t shared = sizeof(float) * static_cast<size_t>(kThreads / layout.lanes * op.x.dim(2));
    visit_layout<T>(layout, [&]<int N, int kPacks>() {
      backward_rows<T, W, N, kPacks><<<kBackwardBlocks, kThreads, shared, device::stream(device)>>>(arguments);
    });
  });
  device::check_launch("rms_norm_gated backward");
  if (weight.wanted()) add_column_sums(partial, weight);
  return grads;
}

RmsNormGated::Grads outline_backward(const RmsNormGated& op, const Tensor& inv_rms, const Tensor& dy,
                                     const GradTarget& weight) {
  const Tensor partial = partial_sums(op, weight);
  return ops::outline<RmsNormGated>().backward(op, inv_rms, dy, weight);
}

ops::Refusal accepts(const RmsNormGated::Signature& s, const HardwareFacts&) {
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  const Layout layout = layout_of(s.dim, static_cast<int>(16 / size_of(s.dtype)));
  if (layout.packs > kMostPacks)
    return fmt::format("heads must be at most {} wide, are {}", kMostPacks * 32 * layout.elements, s.dim);
  return std::nullopt;
}

}  // namespace

void register_cuda_rms_norm_gated() {
  ops::kernels<RmsNormGated>().add("cuda", {.hardware = hardware::kGpu,
                                            .accepts = accepts,
                                            .forward = forward,
                                            .backward = backward,
                                            .batch_invariant = true,
                                            .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
