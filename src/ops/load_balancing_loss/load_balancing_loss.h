#pragma once
#include <vector>

#include "ops/selection.h"
#include "tensor/host_inputs.h"

namespace temper::ops {

// loss = factor · experts · Σ_e f[e] P[e] over all routers of a model together (Fedus et al., "Switch
// Transformers", 2021, equations 4 to 6, as transformers' load_balancing_loss_func):
//   f[e] = Σ_routers counts[e] / rows      rows = Σ_routers Σ_e counts[e] / top_k
//   P[e] = Σ_routers sums[e] · inverse_tokens / routers
// f is a constant. inverse_tokens is one over the tokens of the whole update: so the losses of its
// micro-batches add up to their mean, weighted by their tokens. Of no rows it is 0.
struct LoadBalancingLoss {
  static constexpr std::string_view kName = "load_balancing_loss", kField = "load_balancing_loss";
  struct Signature {
    DType dtype = DType::kF32;  // of the model
    int64_t experts = 0;
  };

  // Of each router, as ops/moe_router gives them; counts may be those of other tokens (of the whole update).
  std::vector<Tensor> counts;  // [experts + 1] int32, whose last entry is not read
  std::vector<Tensor> sums;    // [experts + 1] float32: the same
  int64_t top_k = 1;
  float factor = 1;
  HostValue<float> inverse_tokens = 1.f;

  using Forward = Tensor(const LoadBalancingLoss&);  // [1] float32
  // What every router's sums have as gradient, times dy [1] float32: [experts + 1] float32, with a last 0.
  using Backward = Tensor(const LoadBalancingLoss&, const Tensor& dy);
  using Compose = Var(Tape&, const std::vector<Var>& sums, const LoadBalancingLoss&);
};

// `op` carries everything but the sums.
Var load_balancing_loss(Tape& tape, Bound<LoadBalancingLoss> bound, const std::vector<Var>& sums,
                        LoadBalancingLoss op);

}  // namespace temper::ops
