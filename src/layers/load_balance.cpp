#include "layers/load_balance.h"

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "primitives/expert_counts.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

// Counts of which only the sum over the routers is read, in place of those of fewer routers.
std::vector<Tensor> added_to(const std::vector<Tensor>& counts, size_t routers) {
  if (counts.size() == routers) return counts;
  std::vector<Tensor> fewer{counts.front().clone()};
  for (size_t i = 1; i < counts.size(); ++i) primitives::add_counts(fewer.front(), counts[i]);
  while (fewer.size() < routers) {
    fewer.push_back(Tensor::empty(counts.front().shape(), counts.front().dtype(), MemoryTag::kWorkspace,
                                  counts.front().device()));
    fewer.back().fill_zero();
  }
  return fewer;
}

}  // namespace

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
    if (router.parts.empty()) continue;  // on another stage
    op.counts.push_back(router.parts[part].counts);
    sums.push_back(router.parts[part].sums);
  }
  const size_t here = sums.size(), all = trace.routers.size();
  if (here == 0) return {};
  invariant(here == all || !options.counts.empty(), "what all routers chose is known");
  if (!options.counts.empty()) op.counts = added_to(options.counts, here);
  op.top_k = top_k_;
  // All tensor ranks see all tokens: of the gradient each gives its share, whose sum is whole.
  const auto ranks = static_cast<float>(tensor_ranks_);
  // The mean over the routers is one over those of all stages.
  op.factor = options.factor / ranks * static_cast<float>(here) / static_cast<float>(all);
  op.inverse_tokens = options.inverse_tokens;
  const Var share = ops::load_balancing_loss(tape, kernel_, sums, std::move(op));
  if (ranks == 1) return share;
  Tape unrecorded(false);
  return tape.record(primitives::scale(unrecorded, share, ranks).value, {&share},
                     [slot = share.slot](const Tensor& grad) { slot->add(grad); });
}

}  // namespace temper::layers
