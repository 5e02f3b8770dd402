// The scores of a token are computed again by its warp.
#include "backends/cuda/experts/router_scores.h"

namespace temper::backends {
namespace {

using ops::MoeRouter;

// The gradients of a token's scores from those of its weights; `scores` is the warp's room for them.
template <int kHeld>
__device__ inline void add_of_weights(const RoutingArguments& a, const RouterScores<kHeld>& row, float* scores,
                                      const int* ids, const float* dweights, float (&grads)[kHeld]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i < a.experts) scores[lane + 32 * i] = row.scores[i];
  __syncwarp();
  float divisor = 1, along = 0;
  if (a.normalize) {
    divisor = 0;
    for (int k = 0; k < a.top_k; ++k) divisor += scores[ids[k]];
    divisor += 1e-20f;
    for (int k = 0; k < a.top_k; ++k) along += dweights[k] * scores[ids[k]] / divisor;
  }
  const float factor = a.scaling / divisor;
  for (int k = 0; k < a.top_k; ++k) {
    const float grad = factor * (dweights[k] - along);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) grads[i] += ids[k] == lane + 32 * i ? grad : 0.f;
  }
}

template <int kHeld>
__global__ void __launch_bounds__(kRouterWarps<kHeld> * 32)
    route_backward(RoutingArguments a, const int* ids, const float* dweights, const float* dsums, void* dlogits) {
  extern __shared__ float memory[];  // [warps, experts]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int token = blockIdx.x * kRouterWarps<kHeld> + warp;
  if (token >= a.tokens) return;
  RouterScores<kHeld> row;
  row.read(a, token, lane, false);
  float grads[kHeld] = {};  // of the scores
  if (dweights != nullptr)
    add_of_weights(a, row, memory + warp * a.experts, ids + int64_t{token} * a.top_k,
                   dweights + int64_t{token} * a.top_k, grads);
  if (dsums != nullptr && (a.counted == nullptr || token < *a.counted)) {
    float of_experts[kHeld], along = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      of_experts[i] = lane + 32 * i < a.experts ? dsums[lane + 32 * i] : 0.f;
      along += of_experts[i] * row.scores[i] / row.whole;
    }
    along = a.sigmoid ? warp_sum(along) : 0.f;  // a softmax's sum is 1 whatever the scores
#pragma unroll
    for (int i = 0; i < kHeld; ++i) grads[i] += (of_experts[i] - along) / row.whole;
  }
  float along = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (lane + 32 * i < a.experts) along += grads[i] * row.scores[i];
  along = warp_sum(along);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = lane + 32 * i;
    const float score = row.scores[i];
    if (e >= a.experts) continue;
    const float grad = a.sigmoid ? grads[i] * score * (1 - score) : score * (grads[i] - along);
    const int64_t place = int64_t{token} * a.experts + e;
    if (a.brain)
      static_cast<__nv_bfloat16*>(dlogits)[place] = narrow<__nv_bfloat16>(grad);
    else
      static_cast<float*>(dlogits)[place] = grad;
  }
}

}  // namespace

Tensor moe_router_gradient(const MoeRouter& op, const MoeRouter::Output& out, const Tensor& dweights,
                           const Tensor& dsums) {
  const Device device = op.logits.device();
  const Tensor dlogits = Tensor::empty(op.logits.shape(), op.logits.dtype(), MemoryTag::kActivations, device);
  if (dlogits.numel() == 0) return dlogits;
  visit_held(op.routing.experts, [&]<int kHeld>() {
    constexpr int kWarps = kRouterWarps<kHeld>;
    const int64_t blocks = (op.logits.dim(0) + kWarps - 1) / kWarps;
    route_backward<kHeld><<<static_cast<unsigned>(blocks), kWarps * 32,
                            static_cast<size_t>(kWarps * op.routing.experts) * sizeof(float),
                            device::stream(device)>>>(
        routing_arguments(op), out.ids.data<int32_t>(), dweights.defined() ? dweights.data<float>() : nullptr,
        dsums.defined() ? dsums.data<float>() : nullptr, dlogits.raw());
  });
  device::check_launch("moe_router");
  return dlogits;
}

}  // namespace temper::backends
