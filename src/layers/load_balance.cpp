#include "layers/load_balance.h"

#include "layers/decoder_modules.h"
#include "primitives/primitives.h"

namespace temper::layers {

LoadBalance::LoadBalance(const DecoderConfig& config, const ops::BoundOps& ops, size_t routers,
                         int tensor_ranks)
    : tensor_ranks_(tensor_ranks) {
  if (routers == 0) return;
  top_k_ = routing_of(config)->top_k;
  kernel_ = ops.at<ops::LoadBalancingLoss>("routers");
}

Var LoadBalance::loss(Tape& tape, const RouterTrace& trace, size_t part, const Options& options) const {
  ops::LoadBalancingLoss op;
  std::vector<Var> sums;
  for (const RouterTrace::Router& router : trace.routers) {
    op.counts.push_back(router.parts[part].counts);
    sums.push_back(router.parts[part].sums);
  }
  if (!options.counts.empty()) op.counts = options.counts;
  op.top_k = top_k_;
  // All tensor ranks see all tokens: of the gradient each gives its share, whose sum is whole.
  const auto ranks = static_cast<float>(tensor_ranks_);
  op.factor = options.factor / ranks;
  op.inverse_tokens = options.inverse_tokens;
  const Var share = ops::load_balancing_loss(tape, kernel_, sums, std::move(op));
  if (ranks == 1) return share;
  Tape unrecorded(false);
  return tape.record(primitives::scale(unrecorded, share, ranks).value, {&share},
                     [slot = share.slot](const Tensor& grad) { slot->add(grad); });
}

}  // namespace temper::layers
