// A group of threads keeps a row in registers: every byte is read and written once.
#include "backends/cuda/ahead.h"
#include "backends/gpu/dependent_launch.h"
#include "backends/gpu/sums.h"
#include "ops/rms_norm/rms_norm.h"

namespace temper::backends {
namespace {

using ops::RmsNorm;

constexpr int kMinThreads = 128;
constexpr int kWidePacks = 8;  // of threads that 1024 of share a row: forward's others have more registers
constexpr int kBackwardPacks = 2;
constexpr unsigned kAheadThreads = 512;  // of a block whose loads wait in shared memory
constexpr int kBackwardThreads = 132 * 512;  // fixed, so that sums do not depend on the GPU

// How rows are laid over threads: `lanes` elements at a time, `packs` times, by `group` threads.
struct Layout {
  int lanes, packs;
  unsigned group, rows_per_block;
};

// `packs`: the most a thread holds where 1024 threads can hold a row with them.
Layout layout_of(int64_t hidden, int full_lanes, int packs) {
  Layout layout{hidden % full_lanes == 0 ? full_lanes : 1, 0, 32, 1};
  const int64_t pieces = hidden / layout.lanes;
  while (layout.group < 1024 && pieces > int64_t{layout.group} * packs) layout.group *= 2;
  const int64_t needed = (pieces + layout.group - 1) / layout.group;
  for (layout.packs = 1; layout.packs < needed;) layout.packs *= 2;
  layout.rows_per_block = layout.group == 32 ? kMinThreads / 32 : 1;
  return layout;
}

// The sum over a row's threads, in every one of them. Rows of more than one warp have their block alone.
__device__ float row_sum(float value, float* shared) {
  return blockDim.x == 32 ? warp_sum(value) : block_sum(value, shared);
}

template <bool kOffset, class T>
__device__ float factor(T weight, float offset) {
  if constexpr (kOffset) return widen(weight) + offset;
  return widen(weight);
}

template <class T>
struct ForwardArguments {
  const T *x, *residual, *weight;
  T *y, *sum;
  float* inv_rms;
  int64_t rows, hidden, x_stride;
  float eps, offset;
};

// What is read travels together: before anything is written, and the weight while the squares are added up.
template <class T, int N, int kPacks, bool kOffset>
__global__ void __launch_bounds__(kPacks < kWidePacks ? 512 : 1024) forward_rows(ForwardArguments<T> a) {
  __shared__ float shared[32];
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0)
    prefetch_to_l2(a.weight, a.hidden * int64_t{sizeof(T)});
  wait_for_inputs();
  if (row >= a.rows) return;  // a whole row's threads: rows that share a block are one warp each
  const auto for_packs = [&](auto&& use) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = (int64_t{p} * blockDim.x + threadIdx.x) * N;
      if (i < a.hidden) use(p, i);
    }
  };
  Pack<T, N> x[kPacks], other[kPacks];  // other: the residual, then the weight
  for_packs([&](int p, int64_t i) {
    x[p] = load_pack<T, N>(a.x + row * a.x_stride + i);
    if (a.residual != nullptr) other[p] = load_pack<T, N>(a.residual + row * a.hidden + i);
  });
  float squares = 0;
  for_packs([&](int p, int64_t i) {
    if (a.residual != nullptr) {
      for (int k = 0; k < N; ++k) x[p].values[k] = narrow<T>(widen(x[p].values[k]) + widen(other[p].values[k]));
      store_pack(a.sum + row * a.hidden + i, x[p]);
    }
    for (int k = 0; k < N; ++k) squares += widen(x[p].values[k]) * widen(x[p].values[k]);
  });
  for_packs([&](int p, int64_t i) { other[p] = load_pack<T, N>(a.weight + i); });
  squares = row_sum(squares, shared);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(a.hidden) + a.eps);
  if (threadIdx.x == 0) a.inv_rms[row] = scale;
  for_packs([&](int p, int64_t i) {
    for (int k = 0; k < N; ++k)
      x[p].values[k] = narrow<T>(widen(x[p].values[k]) * scale * factor<kOffset>(other[p].values[k], a.offset));
    store_pack(a.y + row * a.hidden + i, x[p]);
  });
}

template <class T>
struct BackwardArguments {
  const T *x, *dy, *dsum, *weight;
  const float* inv_rms;
  T* dx;
  float* dweight;  // [blocks, hidden], or null
  int64_t rows, hidden, x_stride;
  float offset;
};

// A thread's part of what backward reads of one row.
template <class T, int N, int kPacks, bool kSum>
struct RowIn {
  using Slots = Ahead<(kSum ? 3 : 2) * kPacks + 1>;
  Pack<T, N> x[kPacks], dy[kPacks], dsum[kSum ? kPacks : 1];
  float scale;

  // Calls move(slot, to, from) for everything. What is beyond the row comes from within it: loads without conditions
  // travel together.
  template <class Move>
  __device__ void each(const BackwardArguments<T>& a, int64_t row, Move&& move) {
    int slot = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = min((int64_t{p} * blockDim.x + threadIdx.x) * N, a.hidden - N), at = row * a.hidden + i;
      move(slot++, x[p], reinterpret_cast<const Pack<T, N>*>(a.x + row * a.x_stride + i));
      move(slot++, dy[p], reinterpret_cast<const Pack<T, N>*>(a.dy + at));
      if constexpr (kSum) move(slot++, dsum[p], reinterpret_cast<const Pack<T, N>*>(a.dsum + at));
    }
    move(slot, scale, a.inv_rms + row);
  }
  __device__ void load(const BackwardArguments<T>& a, int64_t row) {
    each(a, row, [](int, auto& to, const auto* from) { to = *from; });
  }
  __device__ static void send(const Slots& slots, int stage, const BackwardArguments<T>& a, int64_t row) {
    if (row < a.rows)
      RowIn().each(a, row, [&](int slot, auto&, const auto* from) { slots.send(stage, slot, from); });
    slots.commit();
  }
  __device__ void take(const Slots& slots, int stage, const BackwardArguments<T>& a) {
    each(a, 0, [&](int slot, auto& to, const auto*) { to = slots.template at<std::remove_reference_t<decltype(to)>>(stage, slot); });
  }
};

// Of the rows of a block, in their order.
template <int N, int kPacks>
__device__ void store_sums(const Pack<float, N> (&sums)[kPacks], float* dweight, int64_t hidden) {
  extern __shared__ uint4 memory[];
  auto* const others = reinterpret_cast<float*>(memory);  // [rows per block, hidden]
  __syncthreads();
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = (int64_t{p} * blockDim.x + threadIdx.x) * N;
    if (i >= hidden) continue;
    float* to = blockDim.y == 1 ? dweight : others + threadIdx.y * hidden;
    constexpr int kWidth = N % 4 == 0 ? 4 : 1;
    for (int k = 0; k < N; k += kWidth)
      store_pack(to + i + k, *reinterpret_cast<const Pack<float, kWidth>*>(sums[p].values + k));
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  for (int64_t i = threadIdx.y * blockDim.x + threadIdx.x; i < hidden; i += blockDim.x * blockDim.y) {
    float sum = 0;
    for (unsigned row = 0; row < blockDim.y; ++row) sum += others[row * hidden + i];
    dweight[i] = sum;
  }
}

// With n = x · inv_rms and g = dy · (offset + weight): dx = inv_rms (g - n · mean(g n)) + dsum, and Σ dy n for the weight. kAhead:
// the next row comes while one is worked on.
template <class T, int N, int kPacks, bool kSum, bool kAhead, bool kOffset>
__global__ void __launch_bounds__(kAhead ? kAheadThreads : 1024) backward_rows(const __grid_constant__ BackwardArguments<T> a) {
  using In = RowIn<T, N, kPacks, kSum>;
  extern __shared__ uint4 memory[];
  __shared__ float shared[32];
  Pack<float, N> sums[kPacks] = {};
  Pack<T, N> weight[kPacks];
  for (int p = 0; p < kPacks; ++p)
    weight[p] = load_pack<T, N>(a.weight + min((int64_t{p} * blockDim.x + threadIdx.x) * N, a.hidden - N));
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const typename In::Slots slots(memory);
  if (kAhead) In::send(slots, 0, a, row);
  for (int stage = 0; row < a.rows; row += step, stage ^= 1) {
    In in;
    if (kAhead) {
      In::send(slots, stage ^ 1, a, row + step);
      slots.template wait<1>();
      in.take(slots, stage, a);
    } else {
      in.load(a, row);
    }
    float products = 0;
    for (int p = 0; p < kPacks; ++p) {
      if ((int64_t{p} * blockDim.x + threadIdx.x) * N >= a.hidden) continue;
      for (int k = 0; k < N; ++k) {
        const float gn = widen(in.dy[p].values[k]) * (widen(in.x[p].values[k]) * in.scale);
        sums[p].values[k] += gn;
        products += gn * factor<kOffset>(weight[p].values[k], a.offset);
      }
    }
    const float mean = row_sum(products, shared) / static_cast<float>(a.hidden);
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = (int64_t{p} * blockDim.x + threadIdx.x) * N;
      if (i >= a.hidden) continue;
      Pack<T, N> out;
      for (int k = 0; k < N; ++k) {
        const float n = widen(in.x[p].values[k]) * in.scale,
                    g = widen(in.dy[p].values[k]) * factor<kOffset>(weight[p].values[k], a.offset), dx = in.scale * (g - n * mean);
        out.values[k] = narrow<T>(kSum ? dx + widen(in.dsum[p].values[k]) : dx);
      }
      store_pack(a.dx + row * a.hidden + i, out);
    }
  }
  slots.template wait<0>();
  if (a.dweight != nullptr) store_sums(sums, a.dweight + int64_t{blockIdx.x} * a.hidden, a.hidden);
}

// Calls f.template operator()<offset>(). Rows that are no whole packs are rare: they have kernels with an offset alone.
template <int N, class F>
void visit_offset(float offset, F&& f) {
  if constexpr (N > 1)
    if (offset == 0) return f.template operator()<false>();
  f.template operator()<true>();
}

// Calls f.template operator()<lanes, packs>().
template <class T, class F>
void visit_layout(const Layout& layout, F&& f) {
  const auto packs = [&]<int N>() {
    switch (layout.packs) {
      case 1:
        return f.template operator()<N, 1>();
      case 2:
        return f.template operator()<N, 2>();
      case 4:
        return f.template operator()<N, 4>();
      default:
        return f.template operator()<N, 8>();
    }
  };
  layout.lanes == 1 ? packs.template operator()<1>() : packs.template operator()<kLanes<T>>();
}

// Rows with one stride between them, aligned for whole packs.
Tensor with_even_rows(const Tensor& x) {
  const bool packed = is_aligned(x) && x.stride(-1) == 1;
  if (x.is_contiguous() && packed) return x;
  const int64_t lanes = 16 / size_of(x.dtype());
  return x.ndim() == 2 && packed && x.stride(0) % lanes == 0 ? x : x.clone();
}

int64_t row_stride(const Tensor& x) { return x.is_contiguous() ? x.dim(-1) : x.stride(0); }

RmsNorm::Output forward(const RmsNorm& op) {
  const int64_t hidden = op.x.dim(-1), rows = op.x.numel() / std::max<int64_t>(hidden, 1);
  const Device device = op.x.device();
  const auto empty = [&] { return Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, device); };
  RmsNorm::Output out{empty(), Tensor::empty({rows}, DType::kF32, MemoryTag::kActivations, device), {}};
  if (op.residual.defined()) out.sum = empty();
  if (rows == 0) return out;
  const Tensor x = with_even_rows(op.x), residual = aligned(op.residual), weight = aligned(op.weight);
  visit_wide_or_brain(x.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& tensor) { return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr; };
    const ForwardArguments<T> arguments{at(x),      at(residual), at(weight),  at(out.y),
                                        at(out.sum), out.inv_rms.data<float>(), rows, hidden,
                                        row_stride(x), op.eps,     op.offset};
    Layout layout = layout_of(hidden, kLanes<T>, 4);
    if (layout.group == 1024) layout.packs = kWidePacks;
    visit_layout<T>(layout, [&]<int N, int kPacks>() {
      const dim3 threads(layout.group, layout.rows_per_block);
      const auto blocks = static_cast<unsigned>((rows + layout.rows_per_block - 1) / layout.rows_per_block);
      visit_offset<N>(op.offset, [&]<bool kOffset>() {
        DependentLaunch{"rms_norm", device, blocks, threads}(forward_rows<T, N, kPacks, kOffset>, arguments);
      });
    });
  });
  return out;
}

template <class T, int N, int kPacks, bool kSum, bool kOffset>
void launch_backward(const BackwardArguments<T>& arguments, const Layout& layout, unsigned blocks, Device device) {
  const dim3 threads(layout.group, layout.rows_per_block);
  const size_t sums = layout.rows_per_block > 1 ? sizeof(float) * layout.rows_per_block * arguments.hidden : 0;
  const auto run = [&](auto kernel, size_t bytes) {
    allow_scratch(kernel, bytes);
    kernel<<<blocks, threads, bytes, device::stream(device)>>>(arguments);
    device::check_launch("rms_norm backward");
  };
  if constexpr (kPacks <= kBackwardPacks && N > 1) {
    const size_t bytes = std::max(sums, RowIn<T, N, kPacks, kSum>::Slots::bytes(threads.x * threads.y));
    if (threads.x * threads.y <= kAheadThreads && static_cast<int64_t>(bytes) <= scratch_bytes(device))
      return run(backward_rows<T, N, kPacks, kSum, true, kOffset>, bytes);
  }
  run(backward_rows<T, N, kPacks, kSum, false, kOffset>, sums);
}

struct BackwardCut {
  Layout layout;
  unsigned blocks;
  Tensor partial;  // [blocks, hidden] float32: sums for the weight's gradient, where it is wanted
};

BackwardCut cut_backward(const RmsNorm& op, const GradTarget& weight) {
  const int64_t hidden = op.x.dim(-1);
  const Layout layout = layout_of(hidden, static_cast<int>(16 / size_of(op.x.dtype())), kBackwardPacks);
  BackwardCut cut{layout, kBackwardThreads / (layout.group * layout.rows_per_block), {}};
  if (weight.wanted())
    cut.partial = Tensor::empty({int64_t{cut.blocks}, hidden}, DType::kF32, MemoryTag::kWorkspace, op.x.device());
  return cut;
}

Tensor backward(const RmsNorm& op, const Tensor& inv_rms, const Tensor& given_dy, const Tensor& given_dsum,
                const GradTarget& weight) {
  const int64_t hidden = op.x.dim(-1), rows = inv_rms.numel();
  const Device device = op.x.device();
  const Tensor dx = Tensor::empty(op.x.shape(), op.x.dtype(), MemoryTag::kActivations, device);
  const Tensor x = with_even_rows(op.x), dy = aligned(given_dy), dsum = aligned(given_dsum),
               factors = aligned(op.weight);
  const BackwardCut cut = cut_backward(op, weight);
  visit_wide_or_brain(x.dtype(), [&]<class T>() {
    const auto at = [](const Tensor& tensor) { return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr; };
    const BackwardArguments<T> arguments{at(x),  at(dy),     at(dsum),
                                         at(factors), inv_rms.data<float>(), at(dx),
                                         weight.wanted() ? cut.partial.data<float>() : nullptr,
                                         rows,   hidden,     row_stride(x), op.offset};
    visit_layout<T>(cut.layout, [&]<int N, int kPacks>() {
      const auto launch = [&]<bool kSum>() {
        visit_offset<N>(op.offset, [&]<bool kOffset>() {
          launch_backward<T, N, kPacks, kSum, kOffset>(arguments, cut.layout, cut.blocks, device);
        });
      };
      dsum.defined() ? launch.template operator()<true>() : launch.template operator()<false>();
    });
    if (weight.wanted()) add_column_sums(cut.partial, weight);
  });
  return dx;
}

Tensor outline_backward(const RmsNorm& op, const Tensor& inv_rms, const Tensor& dy, const Tensor& dsum,
                        const GradTarget& weight) {
  const BackwardCut cut = cut_backward(op, weight);
  return ops::outline<RmsNorm>().backward(op, inv_rms, dy, dsum, weight);
}

ops::Refusal accepts(const RmsNorm::Signature& signature, const HardwareFacts&) {
  if (signature.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  const int64_t lanes = 16 / size_of(signature.dtype), most = 1024 * 8;
  const int64_t pieces = signature.hidden % lanes == 0 ? signature.hidden / lanes : signature.hidden;
  if (pieces > most)
    return signature.hidden % lanes == 0
               ? "hidden must be at most 32768 (bfloat16: 65536)"
               : "hidden above 8192 must be a multiple of 8 (float32: 4)";
  return std::nullopt;
}

}  // namespace

void register_cuda_rms_norm() {
  ops::kernels<RmsNorm>().add("cuda", {.hardware = hardware::kGpu,
                                       .accepts = accepts,
                                       .forward = forward,
                                       .backward = backward,
                                       .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
