// A few neighbouring threads hold one head: its lower and upper halves side by side, in packs of 16 bytes.
#include "backends/gpu_sums.h"
#include "backends/cuda/cuda.h"
#include "backends/gpu.h"

namespace temper::backends {
namespace {

using ops::Rotary;

constexpr int kBackwardLanes = 4;
constexpr int kBackwardBlocks = 1056;  // fixed, so that sums do not depend on the GPU

// What every kernel here reads. A group of `kGroup` threads serves one head at a time; thread `lane` of it the
// elements [lane · N, lane · N + N) of both halves.
template <class T>
struct Heads {
  const T *qkv, *q_weight, *k_weight;
  const int* positions;
  const float *cos, *sin;
  int64_t tokens;
  int heads, kv_heads, half;
  float eps;

  __device__ int normed() const { return heads + kv_heads; }
  __device__ int64_t row() const { return int64_t{heads + 2 * kv_heads} * 2 * half; }
};

template <int kGroup>
__device__ float group_sum(float value) {
  for (int lane = kGroup / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane, kGroup);
  return value;
}

template <int N>
struct Half {
  float values[N] = {};
};

template <int N, class T>
__device__ Half<N> read_half(const T* from) {
  const Pack<T, N> pack = load_pack<T, N>(from);
  Half<N> half;
  for (int k = 0; k < N; ++k) half.values[k] = widen(pack.values[k]);
  return half;
}

template <int N, class T>
__device__ void write_half(T* to, const Half<N>& half) {
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.values[k] = narrow<T>(half.values[k]);
  store_pack(to, pack);
}

// Rows of the tables are as aligned as packs are: half a head is a multiple of N.
template <int N>
struct Angles {
  alignas(16) float cos[N];
  alignas(16) float sin[N];
};

template <int N, class T>
__device__ Angles<N> angles_of(const Heads<T>& a, int64_t token, int lane) {
  const int64_t at = int64_t{__ldg(a.positions + token)} * a.half + lane * N;
  Angles<N> angles;
  if constexpr (N % 4 == 0) {
    for (int i = 0; i < N; i += 4) {
      *reinterpret_cast<float4*>(angles.cos + i) = __ldg(reinterpret_cast<const float4*>(a.cos + at + i));
      *reinterpret_cast<float4*>(angles.sin + i) = __ldg(reinterpret_cast<const float4*>(a.sin + at + i));
    }
  } else {
    for (int i = 0; i < N; ++i) {
      angles.cos[i] = __ldg(a.cos + at + i);
      angles.sin[i] = __ldg(a.sin + at + i);
    }
  }
  return angles;
}

template <class T, int N, int kGroup>
__global__ void forward_heads(Heads<T> a, T* q, T* k, float* inv_rms) {
  const int lane = threadIdx.x % kGroup;
  const bool active = lane * N < a.half;
  const int64_t items = a.tokens * a.normed(), step = grid_threads() / kGroup;
  const int64_t begin = global_thread() / kGroup;
  // Whole warps leave together: shuffles need every thread of a group.
  for (int64_t item = begin; item - begin % (32 / kGroup) < items; item += step) {
    const bool there = item < items && active;
    const int64_t token = item / a.normed();
    const int head = static_cast<int>(item % a.normed());
    const bool query = head < a.heads;
    const T* x = a.qkv + token * a.row() + int64_t{head} * 2 * a.half + lane * N;
    Half<N> low, high;
    if (there) {
      low = read_half<N>(x);
      high = read_half<N>(x + a.half);
    }
    if (a.q_weight != nullptr) {
      float squares = 0;
      for (int i = 0; i < N; ++i) squares += low.values[i] * low.values[i] + high.values[i] * high.values[i];
      const float scale = 1.0f / sqrtf(group_sum<kGroup>(squares) / static_cast<float>(2 * a.half) + a.eps);
      if (there) {
        if (lane == 0) inv_rms[item] = scale;
        const T* weight = (query ? a.q_weight : a.k_weight) + lane * N;
        const Half<N> wl = read_half<N>(weight), wh = read_half<N>(weight + a.half);
        for (int i = 0; i < N; ++i) {
          low.values[i] *= scale * wl.values[i];
          high.values[i] *= scale * wh.values[i];
        }
      }
    }
    if (!there) continue;
    const Angles<N> angles = angles_of<N>(a, token, lane);
    Half<N> new_low, new_high;
    for (int i = 0; i < N; ++i) {
      new_low.values[i] = low.values[i] * angles.cos[i] - high.values[i] * angles.sin[i];
      new_high.values[i] = high.values[i] * angles.cos[i] + low.values[i] * angles.sin[i];
    }
    T* y = (query ? q + (token * a.heads + head) * 2 * a.half
                  : k + (token * a.kv_heads + head - a.heads) * 2 * a.half) +
           lane * N;
    write_half(y, new_low);
    write_half(y + a.half, new_high);
  }
}

template <class T>
struct Gradients {
  const T *dq, *dk, *dv;
  int64_t q_stride, k_stride, v_stride;  // between tokens
  const float* inv_rms;
  T* dqkv;
  float* dweights;  // [blocks, 2, head_dim]: of q's weight, then k's; null without norm
};

// The gradient of one rotated head, rotated back.
template <int N>
__device__ void rotate_back(const Angles<N>& angles, Half<N>& low, Half<N>& high) {
  for (int i = 0; i < N; ++i) {
    const float l = low.values[i], h = high.values[i];
    low.values[i] = l * angles.cos[i] + h * angles.sin[i];
    high.values[i] = h * angles.cos[i] - l * angles.sin[i];
  }
}

// A block takes whole tokens, its groups their heads in turn.
template <class T, int N, int kGroup>
__global__ void __launch_bounds__(kThreads, 4) backward_heads(Heads<T> a, Gradients<T> g) {
  extern __shared__ float shared[];  // [groups, 2, head_dim]
  const int lane = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
  const int groups = blockDim.x / kGroup, dim = 2 * a.half, all = a.heads + 2 * a.kv_heads;
  const bool active = lane * N < a.half, norm = a.q_weight != nullptr;
  Half<N> sums[2][2];  // of q's and k's weights; lower and upper half
  for (int64_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
    Angles<N> angles;
    if (active) angles = angles_of<N>(a, token, lane);
    for (int first = 0; first < all; first += groups) {
      const int head = first + group;
      const bool there = head < all && active;
      const bool query = head < a.heads, value = head >= a.normed();
      Half<N> low, high, n_low, n_high;
      if (there) {
        const T* from = query   ? g.dq + token * g.q_stride + int64_t{head} * dim
                        : value ? g.dv + token * g.v_stride + int64_t{head - a.normed()} * dim
                                : g.dk + token * g.k_stride + int64_t{head - a.heads} * dim;
        low = read_half<N>(from + lane * N);
        high = read_half<N>(from + a.half + lane * N);
        if (!value) rotate_back(angles, low, high);
      }
      float scale = 0, products = 0;
      if (norm && there && !value) {
        const T* x = a.qkv + token * a.row() + int64_t{head} * dim + lane * N;
        const T* weight = (query ? a.q_weight : a.k_weight) + lane * N;
        scale = g.inv_rms[token * a.normed() + head];
        n_low = read_half<N>(x);
        n_high = read_half<N>(x + a.half);
        const Half<N> wl = read_half<N>(weight), wh = read_half<N>(weight + a.half);
        for (int i = 0; i < N; ++i) {
          n_low.values[i] *= scale;
          n_high.values[i] *= scale;
          const float gl = low.values[i] * n_low.values[i], gh = high.values[i] * n_high.values[i];
          sums[0][0].values[i] += query ? gl : 0.f;
          sums[0][1].values[i] += query ? gh : 0.f;
          sums[1][0].values[i] += query ? 0.f : gl;
          sums[1][1].values[i] += query ? 0.f : gh;
          low.values[i] *= wl.values[i];
          high.values[i] *= wh.values[i];
          products += low.values[i] * n_low.values[i] + high.values[i] * n_high.values[i];
        }
      }
      if (norm) {
        const float mean = group_sum<kGroup>(products) / static_cast<float>(dim);
        if (!value)
          for (int i = 0; i < N; ++i) {
            low.values[i] = scale * (low.values[i] - n_low.values[i] * mean);
            high.values[i] = scale * (high.values[i] - n_high.values[i] * mean);
          }
      }
      if (!there) continue;
      T* to = g.dqkv + token * a.row() + int64_t{head} * dim + lane * N;
      write_half(to, low);
      write_half(to + a.half, high);
    }
  }
  if (g.dweights == nullptr) return;
  if (active)
    for (int which = 0; which < 2; ++which)
      for (int i = 0; i < N; ++i) {
        float* at = shared + (group * 2 + which) * dim + lane * N + i;
        at[0] = sums[which][0].values[i];
        at[a.half] = sums[which][1].values[i];
      }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * dim; i += blockDim.x) {
    float sum = 0;
    for (int other = 0; other < groups; ++other) sum += shared[other * 2 * dim + i];
    g.dweights[int64_t{blockIdx.x} * 2 * dim + i] = sum;
  }
}

template <class T>
Heads<T> heads_of(const Rotary& op) {
  const auto at = [](const Tensor& t) { return t.defined() ? static_cast<const T*>(t.raw()) : nullptr; };
  return {at(op.qkv),
          at(op.q_weight),
          at(op.k_weight),
          op.positions.data<int32_t>(),
          op.cos.data<float>(),
          op.sin.data<float>(),
          op.qkv.dim(0),
          static_cast<int>(op.heads),
          static_cast<int>(op.kv_heads),
          static_cast<int>(op.cos.dim(1)),
          op.eps};
}

// Calls f.template operator()<lanes, group>() for the narrowest group that holds half a head, kPack elements a
// thread.
template <int kPack, class F>
void visit_group(int half, F&& f) {
  const auto groups = [&]<int N>() {
    const int threads = (half + N - 1) / N;
    if (threads <= 4) return f.template operator()<N, 4>();
    if (threads <= 8) return f.template operator()<N, 8>();
    if (threads <= 16) return f.template operator()<N, 16>();
    return f.template operator()<N, 32>();
  };
  half % kPack == 0 ? groups.template operator()<kPack>() : groups.template operator()<1>();
}

// What is loaded in packs, where that is possible.
Rotary aligned_inputs(Rotary op) {
  for (Tensor* tensor : {&op.qkv, &op.q_weight, &op.k_weight}) *tensor = aligned(*tensor);
  return op;
}

Rotary::Output forward(const Rotary& given) {
  const Rotary op = aligned_inputs(given);
  const int64_t tokens = op.qkv.dim(0), dim = 2 * op.cos.dim(1);
  const Device device = op.qkv.device();
  const auto empty = [&](Shape shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kActivations, device);
  };
  Rotary::Output out{empty({tokens, op.heads, dim}, op.qkv.dtype()),
                     empty({tokens, op.kv_heads, dim}, op.qkv.dtype()), {}};
  const bool norm = op.q_weight.defined();
  if (norm) out.inv_rms = empty({tokens, op.heads + op.kv_heads}, DType::kF32);
  if (tokens == 0) return out;
  visit_wide_or_brain(op.qkv.dtype(), [&]<class T>() {
    const Heads<T> heads = heads_of<T>(op);
    visit_group<kLanes<T>>(heads.half, [&]<int N, int kGroup>() {
      forward_heads<T, N, kGroup>
          <<<blocks_for(tokens * (op.heads + op.kv_heads) * kGroup), kThreads, 0, device::stream(device)>>>(
              heads, static_cast<T*>(out.q.raw()), static_cast<T*>(out.k.raw()),
              norm ? out.inv_rms.data<float>() : nullptr);
    });
    device::check_launch("rotary_pos_emb");
  });
  return out;
}

// Tokens may have any stride; packs need them aligned.
Tensor with_aligned_tokens(const Tensor& grad) {
  const bool even = grad.stride(0) * size_of(grad.dtype()) % 16 == 0;
  return even ? aligned(grad) : grad.clone();
}

Tensor backward(const Rotary& given, const Tensor& inv_rms, const Tensor& given_dq, const Tensor& given_dk,
                const Tensor& given_dv, const GradTarget& q_weight, const GradTarget& k_weight) {
  const Rotary op = aligned_inputs(given);
  const Device device = op.qkv.device();
  const int64_t dim = 2 * op.cos.dim(1);
  const Tensor dqkv = Tensor::empty(op.qkv.shape(), op.qkv.dtype(), MemoryTag::kActivations, device);
  const Tensor dq = with_aligned_tokens(given_dq), dk = with_aligned_tokens(given_dk),
               dv = with_aligned_tokens(given_dv);
  Tensor partial;
  if (q_weight.wanted() || k_weight.wanted())
    partial = Tensor::empty({kBackwardBlocks, 2 * dim}, DType::kF32, MemoryTag::kWorkspace, device);
  visit_wide_or_brain(op.qkv.dtype(), [&]<class T>() {
    const Heads<T> heads = heads_of<T>(op);
    const auto at = [](const Tensor& tensor) { return static_cast<const T*>(tensor.raw()); };
    const Gradients<T> gradients{at(dq), at(dk), at(dv), dq.stride(0), dk.stride(0), dv.stride(0),
                                 inv_rms.defined() ? inv_rms.data<float>() : nullptr,
                                 static_cast<T*>(dqkv.raw()),
                                 partial.defined() ? partial.data<float>() : nullptr};
    // Half a pack: backward holds so much of each element that fewer of them keep more threads busy.
    visit_group<kBackwardLanes>(heads.half, [&]<int N, int kGroup>() {
      const size_t shared = partial.defined() ? size_t{kThreads / kGroup} * 2 * static_cast<size_t>(dim) * 4 : 0;
      backward_heads<T, N, kGroup>
          <<<kBackwardBlocks, kThreads, shared, device::stream(device)>>>(heads, gradients);
    });
    device::check_launch("rotary_pos_emb backward");
  });
  if (!partial.defined()) return dqkv;
  for (const auto& [target, first] : {std::pair{&q_weight, int64_t{0}}, {&k_weight, dim}})
    if (target->wanted()) add_column_sums(partial.narrow(1, first, dim).contiguous(), *target);
  return dqkv;
}

ops::Refusal accepts(const Rotary::Signature& signature, const HardwareFacts&) {
  if (signature.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  const int64_t half = signature.head_dim / 2;
  if (half > (half % kBackwardLanes == 0 ? 32 * kBackwardLanes : 32))
    return "head_dim must be a multiple of 8 and at most 256, or at most 64";
  return std::nullopt;
}

}  // namespace

ops::Kernel<Rotary> cuda_rotary_kernel() {
  return {.hardware = hardware::kGpu, .accepts = accepts, .forward = forward, .backward = backward};
}

}  // namespace temper::backends
