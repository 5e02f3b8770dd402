#pragma once
#include "backends/gpu/device_code.h"
#include "ops/moe_router/moe_router.h"

// A warp has one token, a lane every 32nd expert: the scores of all experts are in registers.
namespace temper::backends {

inline constexpr int64_t kMostRouted = 1024;  // experts

// What a kernel needs to know of ops::Routing.
struct RoutingArguments {
  const void*
      logits;  // [tokens, experts], float32 or bfloat16: asked as they are read, to have fewer kernels
  bool brain;
  const int* counted;  // how many of the first tokens are no padding; null: all
  int tokens, experts, top_k, groups, top_groups;
  bool sigmoid, normalize;
  float scaling;
};

inline RoutingArguments routing_arguments(const ops::MoeRouter& op) {
  const ops::Routing& r = op.routing;
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {op.logits.raw(),
          op.logits.dtype() == DType::kBF16,
          op.counted.defined() ? op.counted.data<int32_t>() : nullptr,
          narrow(op.logits.dim(0)),
          narrow(r.experts),
          narrow(r.top_k),
          narrow(r.groups),
          narrow(r.top_groups),
          r.sigmoid,
          r.normalize,
          r.scaling};
}

// Warps of a block whose lanes have kHeld experts each: so their scores fit shared memory twice.
template <int kHeld>
inline constexpr int kRouterWarps = kHeld > 8 ? 4 : 8;

// Calls f.template operator()<kHeld>().
template <class F>
void visit_held(int64_t experts, F&& f) {
  if (experts <= 128) return f.template operator()<4>();
  if (experts <= 256) return f.template operator()<8>();
  f.template operator()<32>();
}

template <int kHeld>
struct RouterScores {
  float scores[kHeld];  // of expert lane + 32 i; 0 past the last
  float whole;          // Σ of all scores, where they are sigmoids: p = score / whole
  float entropy;        // -Σ p log p
  bool finite;

  __device__ void read(const RoutingArguments& a, int token, int lane, bool wants_entropy) {
    const int64_t row = int64_t{token} * a.experts;
    float logits[kHeld], largest = -INFINITY;
    bool all_finite = true;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int e = lane + 32 * i;
      logits[i] = e >= a.experts ? 0.f
                  : a.brain      ? widen(static_cast<const __nv_bfloat16*>(a.logits)[row + e])
                                 : static_cast<const float*>(a.logits)[row + e];
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + 32 * i >= a.experts) continue;
      all_finite = all_finite && isfinite(logits[i]);
      largest = fmaxf(largest, logits[i]);
    }
    finite = __all_sync(0xffffffffu, all_finite);
    largest = warp_max(largest);
    float sum = 0, weighted = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const bool there = lane + 32 * i < a.experts;
      const float score = a.sigmoid ? 1 / (1 + expf(-logits[i])) : expf(logits[i] - largest);
      scores[i] = there ? score : 0.f;
      sum += scores[i];
    }
    sum = warp_sum(sum);
    whole = a.sigmoid ? sum : 1.f;
    if (!a.sigmoid)
#pragma unroll
      for (int i = 0; i < kHeld; ++i) scores[i] = finite ? scores[i] / sum : NAN;
    if (!wants_entropy) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + 32 * i >= a.experts) continue;
      if (!a.sigmoid)
        weighted += scores[i] * (logits[i] - largest);
      else if (scores[i] > 0)
        weighted += scores[i] / sum * logf(scores[i] / sum);
    }
    weighted = warp_sum(weighted);
    entropy = a.sigmoid ? -weighted : logf(sum) - weighted;
  }
};

// Of moe_router; kernel.backward.
Tensor moe_router_gradient(const ops::MoeRouter& op, const ops::MoeRouter::Output& out,
                           const Tensor& dweights, const Tensor& dsums);

}  // namespace temper::backends
