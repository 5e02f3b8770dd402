#pragma once
#include <memory>
#include <vector>

#include "layers/router_trace.h"
#include "ops/load_balancing_loss/load_balancing_loss.h"
#include "ops/selection.h"
#include "tensor/host_inputs.h"

namespace temper::layers {

struct DecoderConfig;

// The load balancing loss of a model's routers (ops/load_balancing_loss).
class LoadBalance {
 public:
  LoadBalance(const DecoderConfig& config, const ops::BoundOps& ops, size_t routers, int tensor_ranks);

  // Of one part of what the routers of a pass recorded, in an update of 1 / inverse_tokens tokens.
  struct Options {
    float factor = 1;
    HostValue<float> inverse_tokens = 1.f;
    // [experts + 1] int32, by router: of the whole update instead of the pass's. Needed where other stages
    // have some of the routers.
    std::vector<Tensor> counts = {};
  };
  // factor · the loss, a scalar float32; where stages divide the routers, the share of those that are here,
  // nothing, Var{}, where none is.
  Var loss(Tape& tape, const RouterTrace& trace, size_t part, const Options& options) const;
  // Whether its kernel asks the CPU in every step.
  bool asks_host() const { return top_k_ > 0 && !kernel_->repeats; }

 private:
  int64_t top_k_ = 0;  // 0: there are no routers
  int tensor_ranks_;
  ops::Bound<ops::LoadBalancingLoss> kernel_;  // where there are routers
};

}  // namespace temper::layers
