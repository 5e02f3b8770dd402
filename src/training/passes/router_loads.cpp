#include "training/passes/router_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "primitives/expert_counts.h"
#include "tensor/reading.h"

namespace temper::training {

double RouterLoad::largest_over_mean() const {
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (all == 0) return 0;
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) *
         static_cast<double>(counts.size()) / static_cast<double>(all);
}

int64_t RouterLoad::idle() const { return std::count(counts.begin(), counts.end(), 0); }

std::vector<Tensor> counts_of_context(const layers::Decoder& model, const layers::RouterTrace& trace,
                                      size_t part) {
  collectives::Group* const ranks = model.ranks().context;
  if (ranks == nullptr) return {};
  std::vector<Tensor> counts;
  for (const layers::RouterTrace::Router& router : trace.routers) {
    const Tensor& own = router.parts[part].counts;
    const Tensor all = ranks->all_gather("tokens of experts", own);
    counts.push_back(all.narrow(0, 0, own.numel()).clone());
    for (int64_t rank = 1; rank < ranks->size(); ++rank)
      primitives::add_counts(counts.back(), all.narrow(0, rank * own.numel(), own.numel()));
  }
  return counts;
}

std::vector<std::vector<std::vector<Tensor>>> counts_of_stages(const layers::Decoder& model,
                                                               std::span<const StagedTraces> batches) {
  std::vector<int64_t> widths;  // by router
  for (const size_t layer : model.router_layers())
    widths.push_back(model.config().blocks[layer].channel->routing()->experts + 1);
  // Of all micro-batches, learners and routers one after the other; a router is on one stage.
  std::vector<int64_t> all;
  for (const StagedTraces& batch : batches)
    for (size_t learner = 0; learner < batch.learners; ++learner)
      for (size_t router = 0; router < widths.size(); ++router) {
        const auto first = static_cast<std::ptrdiff_t>(all.size());
        all.resize(all.size() + static_cast<size_t>(widths[router]));
        for (const auto& trace : batch.passes) {
          const std::vector<layers::RouterTrace::Part>& parts = trace->routers[router].parts;
          if (parts.empty()) continue;
          const Tensor own = parts[learner].counts.on({});
          const auto values = own.values<int32_t>();
          std::transform(values.begin(), values.end(), all.begin() + first, all.begin() + first,
                         std::plus<>());
        }
      }
  const layers::ModelRanks& ranks = model.ranks();
  for (collectives::Group* const group : {ranks.context, ranks.stages.ranks})
    if (group != nullptr) group->sum("tokens of experts", std::span<int64_t>(all));
  std::vector<std::vector<std::vector<Tensor>>> counts;
  auto next = all.begin();
  for (const StagedTraces& batch : batches) {
    counts.emplace_back(batch.learners);
    for (std::vector<Tensor>& of_learner : counts.back())
      for (const int64_t width : widths) {
        const std::vector<int32_t> values(next, next + width);
        of_learner.push_back(Tensor::from(values).on(model.device()));
        next += width;
      }
  }
  return counts;
}

PendingLoads::PendingLoads(const layers::Decoder& model) {
  for (const size_t layer : model.router_layers()) {
    const ops::Routing& routing = *model.config().blocks[layer].channel->routing();
    routers_.push_back({layer, routing.experts, routing.top_k, {}});
  }
}

void PendingLoads::add(const layers::RouterTrace& trace, size_t part) {
  for (size_t i = 0; i < routers_.size(); ++i) {
    if (trace.routers[i].parts.empty()) continue;  // on another stage
    const layers::RouterTrace::Part& own = trace.routers[i].parts[part];
    routers_[i].passes.push_back({start_reading(own.counts), start_reading(own.sums.value)});
  }
}

std::vector<RouterLoad> PendingLoads::wait(collectives::Group& ranks) const {
  std::vector<RouterLoad> loads;
  for (const Router& router : routers_) {
    const auto experts = static_cast<size_t>(router.experts);
    std::vector<int64_t> counts(experts + 1);
    double entropy = 0;
    for (const Recorded& pass : router.passes) {
      const auto* const chosen = static_cast<const int32_t*>(pass.counts->wait());
      for (size_t e = 0; e <= experts; ++e) counts[e] += chosen[e];
      entropy += static_cast<const float*>(pass.sums->wait())[experts];
    }
    ranks.sum("tokens of experts", std::span<int64_t>(counts));
    entropy = ranks.sum("entropy of routers", entropy);
    RouterLoad load{router.layer, {counts.begin(), counts.end() - 1}, 0, 0, counts.back()};
    load.tokens = std::accumulate(load.counts.begin(), load.counts.end(), int64_t{0}) / router.top_k;
    load.entropy = load.tokens == 0 ? 0 : entropy / static_cast<double>(load.tokens);
    loads.push_back(std::move(load));
  }
  return loads;
}

std::string describe_not_finite(const std::vector<RouterLoad>& loads) {
  for (const RouterLoad& load : loads)
    if (load.not_finite > 0)
      return fmt::format("the router of layer {} had NaN or infinite logits for {} of {} tokens", load.layer,
                         load.not_finite, load.tokens);
  return {};
}

}  // namespace temper::training
