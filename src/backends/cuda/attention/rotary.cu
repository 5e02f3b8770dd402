// A few neighbouring threads hold one head: its lower and upper halves side by side, in packs of 16 bytes. They take a
// batch of a token's heads at a time, all loads of a batch before the first use, so that angles and weights are read
// once for several heads. What is not there (the end of a batch, threads beyond half a head) is read from somewhere
// that is: loads without conditions travel together.
#include "backends/cuda/attention/rotary_heads.h"
#include "backends/gpu/dependent_launch.h"
#include "backends/gpu/sums.h"
#include "ops/rotary/rotary.h"

namespace temper::backends {
namespace {

using ops::Rotary;

constexpr unsigned kBackwardBlocks = 1056;  // fixed, so that sums do not depend on the GPU

template <class T, int N, int kGroup, bool kNorm, bool kWhole>
__global__ void __launch_bounds__(kThreads, 3) forward_heads(const __grid_constant__ Job<T> job) {
  unsigned block = blockIdx.x;
  const int which = part_of(job, block);
  const Part<T>& part = job.parts[which];
  if (kNorm && block == 0 && threadIdx.x == 0) prefetch_to_l2(part.weight, 2 * job.half * int64_t{sizeof(T)});
  wait_for_inputs();
  const int lane = threadIdx.x % kGroup, half = job.half;
  const bool active = lane * N < half;
  const Spot<kWhole> spot(job, active ? lane * N : 0);
  Head<T, N> weight;
  if (kNorm) weight.load(part.weight, spot);
  for (Place<kGroup> place(job, part, block); place.any(); place.advance()) {
    const int64_t token = place.token();
    const int first = place.first();
    Head<T, N> heads[kHeadBatch];
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b)
      heads[b].load(part.in + token * part.in_stride + min(first + b, part.heads - 1) * 2 * half, spot);
    Angles<N> angles;
    angles.load(job, token, spot);
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b) {
      Head<T, N>& head = heads[b];
      const bool there = place.there() && active && first + b < part.heads;
      float scale = 1;
      if (kNorm) {
        float squares = 0;
        for (int i = 0; i < N; ++i) {
          const float l = widen(head.low.values[i]), h = widen(head.high.values[i]);
          squares += l * l + h * h;
        }
        squares = group_sum<kGroup>(active ? squares : 0.f);
        scale = rsqrtf(squares * job.inverse_dim + job.eps);
        if (there && lane == 0) part.inv_rms[token * job.normed + first + b] = scale;
      }
      for (int i = 0; i < N; ++i) {
        float l = widen(head.low.values[i]), h = widen(head.high.values[i]);
        if (kNorm) {
          l *= scale * factor<kWhole>(weight.low.values[i], job.offset);
          h *= scale * factor<kWhole>(weight.high.values[i], job.offset);
        }
        head.low.values[i] = narrow<T>(l * angles.cos[i] - h * angles.sin[i]);
        head.high.values[i] = narrow<T>(h * angles.cos[i] + l * angles.sin[i]);
      }
      if (there) head.store(part.out + token * part.out_stride + (first + b) * 2 * half, spot);
    }
  }
}

// Values pass through.
template <class T, int N, int kGroup>
__device__ void copy_heads(const Job<T>& job, const Part<T>& part, unsigned block, int at, bool active) {
  const int half = job.half;
  const Spot<true> spot(at, half);
  for (Place<kGroup> place(job, part, block); place.there(); place.advance()) {
    const int64_t token = place.token();
    Head<T, N> heads[kHeadBatch];
    for (int b = 0; b < kHeadBatch; ++b)
      heads[b].load(part.in + token * part.in_stride + min(place.first() + b, part.heads - 1) * 2 * half, spot);
    for (int b = 0; b < kHeadBatch; ++b)
      if (active && place.first() + b < part.heads)
        heads[b].store(part.out + token * part.out_stride + (place.first() + b) * 2 * half, spot);
  }
}

// A thread's part of the gradient of the weight: of the lower and the upper half.
template <int N>
struct WeightSums {
  float low[N] = {}, high[N] = {};
};
template <class T, int N>
struct NormWeight {
  Head<T, N> values;
  WeightSums<N> sums;
};

// One head back: `dy` becomes dx. x is read only with a norm.
template <class T, int N, int kGroup, bool kNorm, bool kWhole>
__device__ void back_head(Head<T, N>& dy, const Head<T, N>& x, NormWeight<T, N>& weight, const Angles<N>& angles,
                          float scale, const Job<T>& job, bool there) {
  float low[N], high[N];
  for (int i = 0; i < N; ++i) {
    const float l = widen(dy.low.values[i]), h = widen(dy.high.values[i]);
    low[i] = l * angles.cos[i] + h * angles.sin[i];
    high[i] = h * angles.cos[i] - l * angles.sin[i];
  }
  if (kNorm) {
    float products = 0;
    for (int i = 0; i < N; ++i) {
      const float nl = widen(x.low.values[i]) * scale, nh = widen(x.high.values[i]) * scale;
      if (there) {
        weight.sums.low[i] += low[i] * nl;
        weight.sums.high[i] += high[i] * nh;
      }
      low[i] *= factor<kWhole>(weight.values.low.values[i], job.offset);
      high[i] *= factor<kWhole>(weight.values.high.values[i], job.offset);
      products += low[i] * nl + high[i] * nh;
    }
    const float mean = group_sum<kGroup>(there ? products : 0.f) * job.inverse_dim;
    for (int i = 0; i < N; ++i) {
      low[i] = scale * (low[i] - widen(x.low.values[i]) * scale * mean);
      high[i] = scale * (high[i] - widen(x.high.values[i]) * scale * mean);
    }
  }
  for (int i = 0; i < N; ++i) {
    dy.low.values[i] = narrow<T>(low[i]);
    dy.high.values[i] = narrow<T>(high[i]);
  }
}

// The sums of a block's groups, in their order.
template <int N, int kGroup, bool kWhole>
__device__ void store_sums(const WeightSums<N>& sums, float* to, const Spot<kWhole>& spot, bool active) {
  extern __shared__ float shared[];  // [groups, head_dim]
  const int group = threadIdx.x / kGroup, half = spot.half, step = spot.interleaved() ? 2 : 1;
  const int high = spot.interleaved() ? spot.low() + 1 : spot.high(N);
  if (active)
    for (int i = 0; i < N; ++i) {
      shared[group * 2 * half + spot.low() + step * i] = sums.low[i];
      shared[group * 2 * half + high + step * i] = sums.high[i];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * half; i += kThreads) {
    float sum = 0;
    for (int other = 0; other < kThreads / kGroup; ++other) sum += shared[other * 2 * half + i];
    to[i] = sum;
  }
}

template <class T, int N, int kGroup, bool kNorm, bool kWhole>
__global__ void __launch_bounds__(kThreads, 2) backward_heads(const __grid_constant__ Job<T> job) {
  unsigned block = blockIdx.x;
  const int which = part_of(job, block);
  const Part<T>& part = job.parts[which];
  const int lane = threadIdx.x % kGroup, half = job.half;
  const bool active = lane * N < half;
  const int at = active ? lane * N : 0;
  if (which == kValues) return copy_heads<T, N, kGroup>(job, part, block, at, active);
  const Spot<kWhole> spot(job, at);
  NormWeight<T, N> weight;
  if (kNorm) weight.values.load(part.weight, spot);
  for (Place<kGroup> place(job, part, block); place.any(); place.advance()) {
    const int64_t token = place.token();
    const int first = place.first();
    Head<T, N> dy[kHeadBatch], x[kHeadBatch];
    float scales[kHeadBatch];
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b) {
      const int head = min(first + b, part.heads - 1);
      dy[b].load(part.in + token * part.in_stride + head * 2 * half, spot);
      if (!kNorm) continue;
      x[b].load(part.x + token * job.row + head * 2 * half, spot);
      scales[b] = part.inv_rms[token * job.normed + head];
    }
    Angles<N> angles;
    angles.load(job, token, spot);
#pragma unroll
    for (int b = 0; b < kHeadBatch; ++b) {
      const bool there = place.there() && active && first + b < part.heads;
      back_head<T, N, kGroup, kNorm, kWhole>(dy[b], x[b], weight, angles, kNorm ? scales[b] : 1.f, job, there);
      if (there) dy[b].store(part.out + token * part.out_stride + (first + b) * 2 * half, spot);
    }
  }
  if (kNorm && job.dweights != nullptr)
    store_sums<N, kGroup>(weight.sums, job.dweights + int64_t{blockIdx.x} * 2 * half, spot, active);
}

// Calls f.template operator()<lanes, group>() with the widest packs that half a head and what is rotated of it are made
// of and, for whole packs, the narrowest group that holds it.
template <class T, class F>
void visit_group(int half, int pairs, F&& f) {
  constexpr int kWhole = kLanes<T>;
  if (half % kWhole != 0 || pairs % kWhole != 0)
    return half % 4 == 0 && pairs % 4 == 0 ? f.template operator()<4, 32>() : f.template operator()<1, 32>();
  const int threads = half / kWhole;
  if (threads <= 4) return f.template operator()<kWhole, 4>();
  if (threads <= 8) return f.template operator()<kWhole, 8>();
  if (threads <= 16) return f.template operator()<kWhole, 16>();
  f.template operator()<kWhole, 32>();
}

// What both passes read. The parts are the callers'.
template <class T>
Job<T> job_of(const Rotary& op) {
  const auto& [pairs, in_turn] = op.form.sections;
  return {.positions = op.positions.data<int32_t>(),
          .between_positions = op.has_three_positions() ? op.positions.stride(0) : 0,
          .sections = {pairs[0], pairs[1], pairs[2]},
          .interleaved_sections = in_turn,
          .cos = op.cos.data<float>(),
          .sin = op.sin.data<float>(),
          .tokens = op.qkv.dim(0),
          .row = op.qkv.dim(1),
          .normed = static_cast<int>(op.heads + op.kv_heads),
          .half = static_cast<int>(op.head_dim() / 2),
          .pairs = static_cast<int>(op.cos.dim(1)),
          .interleaved = op.form.interleaved,
          .eps = op.eps,
          .inverse_dim = 1 / static_cast<float>(op.head_dim()),
          .offset = op.form.offset};
}

// f.template operator()<norm, halves of whole heads and weights without offset>().
template <class T, class F>
auto with_form(const Job<T>& job, bool norm, F&& f) {
  if (!job.interleaved && job.pairs == job.half && job.offset == 0 && job.between_positions == 0)
    return norm ? f.template operator()<true, true>() : f.template operator()<false, true>();
  return norm ? f.template operator()<true, false>() : f.template operator()<false, false>();
}

template <class T>
T* start_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr;
}

// What is loaded in packs, where that is possible.
Rotary aligned_inputs(Rotary op) {
  for (Tensor* tensor : {&op.qkv, &op.q_weight, &op.k_weight}) *tensor = aligned(*tensor);
  return op;
}

template <class T>
void launch_forward(const Rotary& op, const Rotary::Output& out) {
  const int64_t dim = op.head_dim();
  const Device device = op.qkv.device();
  visit_group<T>(static_cast<int>(dim / 2), static_cast<int>(op.cos.dim(1)), [&]<int N, int kGroup>() {
    const auto part = [&](const Tensor& y, const Tensor& weight, int64_t first) {
      const int64_t heads = y.dim(1), batches = (heads + kHeadBatch - 1) / kHeadBatch * op.qkv.dim(0);
      return Part<T>{.in = start_of<T>(op.qkv) + first * dim,
                     .out = start_of<T>(y),
                     .in_stride = op.qkv.dim(1),
                     .out_stride = y.stride(0),
                     .inv_rms = out.inv_rms.defined() ? out.inv_rms.data<float>() + first : nullptr,
                     .weight = start_of<T>(weight),
                     .heads = static_cast<int>(heads),
                     .blocks = static_cast<unsigned>((batches * kGroup + kThreads - 1) / kThreads)};
    };
    Job<T> job = job_of<T>(op);
    job.parts[kQueries] = part(out.q, op.q_weight, 0);
    job.parts[kKeys] = part(out.k, op.k_weight, op.heads);
    const unsigned blocks = job.parts[kQueries].blocks + job.parts[kKeys].blocks;
    const auto kernel = with_form(job, op.q_weight.defined(), [&]<bool kNorm, bool kWhole>() {
      return forward_heads<T, N, kGroup, kNorm, kWhole>;
    });
    DependentLaunch{"rotary_pos_emb", device, blocks, kThreads}(kernel, job);
  });
}

Rotary::Output forward(const Rotary& given) {
  const Rotary op = aligned_inputs(given);
  const int64_t tokens = op.qkv.dim(0), dim = op.head_dim();
  const auto empty = [&](Shape shape, DType dtype) {
    return Tensor::empty(shape, dtype, MemoryTag::kActivations, op.qkv.device());
  };
  Rotary::Output out{empty({tokens, op.heads, dim}, op.qkv.dtype()),
                     empty({tokens, op.kv_heads, dim}, op.qkv.dtype()), {}};
  if (op.q_weight.defined()) out.inv_rms = empty({tokens, op.heads + op.kv_heads}, DType::kF32);
  if (tokens > 0)
    visit_wide_or_brain(op.qkv.dtype(), [&]<class T>() { launch_forward<T>(op, out); });
  return out;
}

// Tokens may have any stride; packs need them aligned.
Tensor with_aligned_tokens(const Tensor& grad) {
  const bool even = grad.stride(0) * size_of(grad.dtype()) % 16 == 0;
  return even ? aligned(grad) : grad.clone();
}

// [kBackwardBlocks, head_dim] float32 where a weight's gradient is wanted: sums for q's weight, then k's.
Tensor weight_sums(const Rotary& op, const GradTarget& q_weight, const GradTarget& k_weight) {
  if (!q_weight.wanted() && !k_weight.wanted()) return {};
  return Tensor::empty({int64_t{kBackwardBlocks}, op.head_dim()}, DType::kF32, MemoryTag::kWorkspace,
                       op.qkv.device());
}

struct Gradients {
  Tensor dq, dk, dv, dqkv;
  Tensor partial;  // weight_sums()
};

// Blocks by what a kind's heads read and write.
template <class T>
void share_blocks(Job<T>& job, bool norm) {
  const auto cost = [&](int kind) { return job.parts[kind].heads * (norm && kind != kValues ? 3u : 2u); };
  const unsigned all = cost(kQueries) + cost(kKeys) + cost(kValues);
  for (const int kind : {kKeys, kValues})
    job.parts[kind].blocks = std::max(1u, kBackwardBlocks * cost(kind) / all);
  job.parts[kQueries].blocks = kBackwardBlocks - job.parts[kKeys].blocks - job.parts[kValues].blocks;
}

template <class T>
Job<T> backward_job(const Rotary& op, const Tensor& inv_rms, const Gradients& g) {
  const int64_t dim = op.head_dim();
  const auto part = [&](const Tensor& dy, const Tensor& weight, int64_t first) {
    return Part<T>{.in = start_of<T>(dy),
                   .out = start_of<T>(g.dqkv) + first * dim,
                   .in_stride = dy.stride(0),
                   .out_stride = op.qkv.dim(1),
                   .x = start_of<T>(op.qkv) + first * dim,
                   .inv_rms = inv_rms.defined() ? inv_rms.data<float>() + first : nullptr,
                   .weight = start_of<T>(weight),
                   .heads = static_cast<int>(dy.dim(1))};
  };
  Job<T> job = job_of<T>(op);
  job.parts[kQueries] = part(g.dq, op.q_weight, 0);
  job.parts[kKeys] = part(g.dk, op.k_weight, op.heads);
  job.parts[kValues] = part(g.dv, {}, op.heads + op.kv_heads);
  job.dweights = start_of<float>(g.partial);
  share_blocks(job, op.q_weight.defined());
  return job;
}

template <class T>
void launch_backward(const Job<T>& job, bool norm, Device device) {
  visit_group<T>(job.half, job.pairs, [&]<int N, int kGroup>() {
    const size_t shared = job.dweights == nullptr ? 0 : sizeof(float) * (kThreads / kGroup) * 2 * job.half;
    const auto kernel = with_form(job, norm, [&]<bool kNorm, bool kWhole>() {
      return backward_heads<T, N, kGroup, kNorm, kWhole>;
    });
    kernel<<<kBackwardBlocks, kThreads, shared, device::stream(device)>>>(job);
  });
  device::check_launch("rotary_pos_emb backward");
}

Tensor backward(const Rotary& given, const Tensor& inv_rms, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                const GradTarget& q_weight, const GradTarget& k_weight) {
  const Rotary op = aligned_inputs(given);
  const Device device = op.qkv.device();
  const Gradients g{with_aligned_tokens(dq), with_aligned_tokens(dk), with_aligned_tokens(dv),
              Tensor::empty(op.qkv.shape(), op.qkv.dtype(), MemoryTag::kActivations, device),
              weight_sums(op, q_weight, k_weight)};
  visit_wide_or_brain(op.qkv.dtype(), [&]<class T>() {
    const Job<T> job = backward_job<T>(op, inv_rms, g);
    launch_backward(job, op.q_weight.defined(), device);
    int64_t first = 0;
    for (const auto& [target, kind] : {std::pair{&q_weight, kQueries}, {&k_weight, kKeys}}) {
      if (target->wanted()) add_column_sums(g.partial.narrow(0, first, job.parts[kind].blocks), *target);
      first += job.parts[kind].blocks;
    }
  });
  return g.dqkv;
}

Tensor outline_backward(const Rotary& op, const Tensor& inv_rms, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const GradTarget& q_weight, const GradTarget& k_weight) {
  const Tensor partial = weight_sums(op, q_weight, k_weight);
  return ops::outline<Rotary>().backward(op, inv_rms, dq, dk, dv, q_weight, k_weight);
}

ops::Refusal accepts(const Rotary::Signature& signature, const HardwareFacts&) {
  if (signature.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  const int64_t half = signature.head_dim / 2, pairs = half - signature.unrotated / 2;
  if (half > (half % 4 == 0 ? 128 : 32))
    return "head_dim must be a multiple of 8 and at most 256, or at most 64";
  if (half > 32 && pairs % 4 != 0) return "what is rotated of a head of more than 64 must be a multiple of 8";
  return std::nullopt;
}

}  // namespace

void register_cuda_rotary() {
  ops::kernels<Rotary>().add("cuda", {.hardware = hardware::kGpu,
                                      .accepts = accepts,
                                      .forward = forward,
                                      .backward = backward,
                                      .traits = {.positions = 3},
                                      .outline = {.backward = outline_backward}});
}

}  // namespace temper::backends
