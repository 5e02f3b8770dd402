#pragma once
#include "ops/selection.h"

namespace temper::ops {

// sqrt(Σ g²) over all gradients, in double, summed over fixed pieces in a fixed order: the same for any
// number of threads.
struct GlobalNorm {
  static constexpr std::string_view kName = "global_norm", kField = "global_norm";
  struct Signature {};

  std::vector<Tensor> grads;  // float32, compact

  using Forward = double(const GlobalNorm&);
  using Backward = void();  // not differentiable
  using Compose = double(const GlobalNorm&);
};

double global_norm(const BoundOps& ops, const GlobalNorm& op);

}  // namespace temper::ops
