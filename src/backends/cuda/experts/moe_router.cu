// Scores, choice and weights of a token by one warp. Sums over the tokens are added up by blocks and then in the
// blocks' order, so that they repeat.
#include "backends/cuda/experts/router_scores.h"
#include "backends/gpu/dependent_launch.h"
#include "ops/moe_router/moe_router.h"

namespace temper::backends {
namespace {

using ops::MoeRouter;

constexpr int kSummingBlocks = 528;  // at most; fixed, so that sums do not depend on the GPU
constexpr unsigned kAll = 0xffffffffu;

// Numbers that are ordered as the floats are, all above 0. What is no number counts as the smallest.
__device__ inline unsigned order_of(float value) {
  const unsigned bits = __float_as_uint(isnan(value) ? -INFINITY : value == 0 ? 0.f : value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Takes the largest of what the warp's lanes have in `order` (0: nothing), of equal ones the first. Entry lane + 32 i
// is order[i].
template <int kHeld>
__device__ inline int take_largest(unsigned (&order)[kHeld], int lane) {
  unsigned best = 0;
  int at = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (order[i] > best) {
      best = order[i];
      at = lane + 32 * i;
    }
  const unsigned largest = __reduce_max_sync(kAll, best);
  const int taken = static_cast<int>(__reduce_min_sync(kAll, best == largest ? at : 1 << 30));
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i == taken) order[i] = 0;
  return taken;
}

// What is in none of the best groups counts as the smallest.
template <int kHeld>
__device__ void keep_best_groups(const RoutingArguments& a, const float (&choice)[kHeld], unsigned (&order)[kHeld],
                                 float* shared, int lane) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i < a.experts) shared[lane + 32 * i] = isnan(choice[i]) ? -INFINITY : choice[i];
  __syncwarp();
  const int size = a.experts / a.groups;
  unsigned groups[kHeld], kept = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int group = lane + 32 * i;
    groups[i] = 0;
    if (group >= a.groups) continue;
    float first = -INFINITY, second = -INFINITY;
#pragma unroll 8
    for (int k = 0; k < size; ++k) {
      const int e = lane % size + k;  // so that lanes use different banks
      const float value = shared[group * size + (e < size ? e : e - size)];
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
    groups[i] = order_of(first + second);
  }
  for (int k = 0; k < a.top_groups; ++k) {
    const int begin = take_largest(groups, lane) * size;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int e = lane + 32 * i;
      if (e >= begin && e < begin + size) kept |= 1u << i;
    }
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i < a.experts && (kept >> i & 1) == 0) order[i] = order_of(-INFINITY);
  __syncwarp();
}

// The best experts, in `ids`, which every lane sees then. `ids` is also room for a float of each expert.
template <int kHeld>
__device__ void choose(const RoutingArguments& a, const float (&scores)[kHeld], const float* bias, int* ids,
                       int lane) {
  float choice[kHeld];
  unsigned order[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = lane + 32 * i;
    choice[i] = bias != nullptr && e < a.experts ? scores[i] + bias[e] : scores[i];
    order[i] = e < a.experts ? order_of(choice[i]) : 0;
  }
  if (a.groups > 1) keep_best_groups(a, choice, order, reinterpret_cast<float*>(ids), lane);
  for (int k = 0; k < a.top_k; ++k) {
    const int taken = take_largest(order, lane);
    if (lane == 0) ids[k] = taken;
  }
  __syncwarp();
}

struct Results {
  int* ids;
  float *weights, *partial;  // [blocks, 2 (experts + 1)]: counts, then sums; null: they are not wanted
};

// What the block's warps counted and added up, in their order. memory: [warps, experts + 1].
template <int kHeld>
__device__ inline void write_block(const RoutingArguments& a, const float (&sums)[kHeld], float entropy,
                                   const int* counts, float* memory, float* mine) {
  __syncthreads();
  constexpr int kWarps = kRouterWarps<kHeld>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, width = a.experts + 1;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i < a.experts) memory[warp * width + lane + 32 * i] = sums[i];
  if (lane == 0) memory[warp * width + a.experts] = entropy;
  __syncthreads();
  for (int e = threadIdx.x; e < width; e += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += memory[w * width + e];
    mine[e] = __int_as_float(counts[e]);
    mine[width + e] = sum;
  }
}

template <int kHeld>
__global__ void __launch_bounds__(kRouterWarps<kHeld> * 32)
    route(RoutingArguments a, const float* bias, const int* given, int per_warp, Results out) {
  extern __shared__ float memory[];  // [warps, 2, experts + 1], then counts [experts + 1]
  constexpr int kWarps = kRouterWarps<kHeld>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const scores = memory + warp * 2 * (a.experts + 1);
  int* const ids = reinterpret_cast<int*>(scores + a.experts + 1);
  int* const counts = reinterpret_cast<int*>(memory + kWarps * 2 * (a.experts + 1));
  for (int e = threadIdx.x; e <= a.experts; e += blockDim.x) counts[e] = 0;
  wait_for_inputs();
  __syncthreads();
  float sums[kHeld] = {}, entropy = 0;
  const int counted = a.counted != nullptr ? *a.counted : a.tokens;
  const int begin = (blockIdx.x * kWarps + warp) * per_warp, end = min(begin + per_warp, a.tokens);
  for (int token = begin; token < end; ++token) {
    RouterScores<kHeld> row;
    row.read(a, token, lane, out.partial != nullptr);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (lane + 32 * i < a.experts) scores[lane + 32 * i] = row.scores[i];
    const int64_t place = int64_t{token} * a.top_k;
    if (given != nullptr) {
      for (int k = lane; k < a.top_k; k += 32) ids[k] = given[place + k];
      __syncwarp();
    } else {
      choose(a, row.scores, bias, ids, lane);
    }
    float divisor = 1;
    if (a.normalize) {
      divisor = 0;
      for (int k = 0; k < a.top_k; ++k) divisor += scores[ids[k]];
      divisor += 1e-20f;
    }
    const float factor = a.scaling / divisor;
    for (int k = lane; k < a.top_k; k += 32) {
      out.ids[place + k] = ids[k];
      out.weights[place + k] = scores[ids[k]] * factor;
    }
    if (out.partial != nullptr && token < counted) {
      for (int k = lane; k < a.top_k; k += 32) atomicAdd(counts + ids[k], 1);
      if (lane == 0 && !row.finite) atomicAdd(counts + a.experts, 1);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) sums[i] += row.scores[i] / row.whole;
      entropy += row.entropy;
    }
    __syncwarp();  // before the next token's scores
  }
  if (out.partial == nullptr) return;
  write_block(a, sums, entropy, counts, memory, out.partial + int64_t{blockIdx.x} * 2 * (a.experts + 1));
}

// In each column the blocks' counts, which are integers, or their sums.
__global__ void add_blocks(const float* partial, int blocks, int width, int* counts, float* sums) {
  constexpr int kSide = 32;
  __shared__ float shared[kSide][kSide + 1];
  const int column = blockIdx.x * kSide + threadIdx.x;
  const bool counted = column < width;
  float sum = 0;
  int count = 0;
  if (column < 2 * width)
#pragma unroll 4
    for (int block = threadIdx.y; block < blocks; block += kSide) {
      const float value = partial[int64_t{block} * 2 * width + column];
      if (counted)
        count += __float_as_int(value);
      else
        sum += value;
    }
  shared[threadIdx.y][threadIdx.x] = counted ? __int_as_float(count) : sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= 2 * width) return;
  sum = 0;
  count = 0;
  for (int i = 0; i < kSide; ++i) {
    if (counted)
      count += __float_as_int(shared[i][threadIdx.x]);
    else
      sum += shared[i][threadIdx.x];
  }
  if (counted)
    counts[column] = count;
  else
    sums[column - width] = sum;
}

// How the tokens are cut: by their number and that of experts alone.
struct Cut {
  int64_t per_warp, blocks;
};

Cut cut(const MoeRouter& op, bool want_sums) {
  int64_t warps = 0;
  visit_held(op.routing.experts, [&]<int kHeld>() { warps = kRouterWarps<kHeld>; });
  const int64_t tokens = op.logits.dim(0), most = want_sums ? kSummingBlocks * warps : std::max<int64_t>(tokens, 1);
  const int64_t per_warp = std::max<int64_t>((tokens + most - 1) / most, 1);
  return {per_warp, (tokens + warps * per_warp - 1) / (warps * per_warp)};
}

Tensor empty_partial(const MoeRouter& op, bool want_sums) {
  if (!want_sums) return {};
  return Tensor::empty({cut(op, true).blocks, 2 * (op.routing.experts + 1)}, DType::kF32, MemoryTag::kWorkspace,
                       op.logits.device());
}

MoeRouter::Output forward(const MoeRouter& op, bool want_sums) {
  const MoeRouter::Output out = ops::outline<MoeRouter>().forward(op, want_sums);
  const Device device = op.logits.device();
  const Tensor partial = empty_partial(op, want_sums);
  const Cut pieces = cut(op, want_sums);
  const auto width = static_cast<int>(op.routing.experts + 1);
  const cudaStream_t stream = device::stream(device);
  if (pieces.blocks > 0)
    visit_held(op.routing.experts, [&]<int kHeld>() {
      constexpr int kWarps = kRouterWarps<kHeld>;
      const Results results{out.ids.data<int32_t>(), out.weights.data<float>(),
                            want_sums ? partial.data<float>() : nullptr};
      DependentLaunch{"moe_router", device, static_cast<unsigned>(pieces.blocks), kWarps * 32,
                      static_cast<size_t>((kWarps * 2 + 1) * width) * sizeof(float)}(
          route<kHeld>, routing_arguments(op), op.bias.defined() ? op.bias.data<float>() : nullptr,
          op.given.defined() ? op.given.data<int32_t>() : nullptr, static_cast<int>(pieces.per_warp), results);
    });
  if (want_sums)
    add_blocks<<<static_cast<unsigned>((2 * width + 31) / 32), dim3(32, 32), 0, stream>>>(
        partial.data<float>(), static_cast<int>(pieces.blocks), width, out.counts.data<int32_t>(),
        out.sums.data<float>());
  device::check_launch("moe_router");
  return out;
}

MoeRouter::Output outline_forward(const MoeRouter& op, bool want_sums) {
  const Tensor partial = empty_partial(op, want_sums);
  return ops::outline<MoeRouter>().forward(op, want_sums);
}

ops::Refusal accepts(const MoeRouter::Signature& s, const HardwareFacts&) {
  if (s.experts > kMostRouted)
    return fmt::format("is for at most {} experts, this has {}", kMostRouted, s.experts);
  if (s.dtype == DType::kF16) return "dtype must be float32 or bfloat16";
  return std::nullopt;
}

}  // namespace

void register_cuda_moe_router() {
  ops::kernels<MoeRouter>().add("cuda", {.hardware = hardware::kGpu,
                                         .accepts = accepts,
                                         .forward = forward,
                                         .backward = moe_router_gradient,
                                         .batch_invariant = true,
                                         .repeats = true,
                                         .outline = {.forward = outline_forward}});
}

}  // namespace temper::backends
