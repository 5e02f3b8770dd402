#include "rollout/passes/batch_input.h"

#include <algorithm>

namespace temper::rollout {

layers::BatchInput batch_input_of(const std::vector<ScheduledPart>& parts) {
  layers::BatchInput input;
  std::vector<int32_t> ids, starts{0}, held, tables, slots;
  size_t width = 1;
  for (const ScheduledPart& part : parts) width = std::max(width, part.sequence->pages.size());
  bool adapted = false, experts = false;
  for (const auto& [sequence, tokens, decodes] : parts) {
    const Request& request = sequence->request();
    const auto first = sequence->tokens.begin() + sequence->computed;
    ids.insert(ids.end(), first, first + tokens);
    starts.push_back(starts.back() + static_cast<int32_t>(tokens));
    held.push_back(static_cast<int32_t>(sequence->computed));
    tables.insert(tables.end(), sequence->pages.begin(), sequence->pages.end());
    tables.resize(held.size() * width, PagePool::kNone);
    slots.push_back(sequence->slot);
    input.batch.decoding += decodes;
    adapted = adapted || request.adapter != nullptr;
    experts = experts || request.record_experts;
    if (!input.adapters.empty() && input.adapters.back().adapter == request.adapter)
      input.adapters.back().rows += tokens;
    else
      input.adapters.push_back({request.adapter, tokens});
  }
  if (!adapted) input.adapters.clear();
  if (experts) input.routers = std::make_shared<layers::RouterTrace>();
  input.ids = Tensor::from(ids);
  input.batch.slots = Tensor::from(slots);
  input.batch.sequences = {Tensor::from(starts), Tensor::from(held),
                           Tensor::from(tables).reshape({std::ssize(held), static_cast<int64_t>(width)})};
  return input;
}

void record_experts(const std::vector<ScheduledPart>& parts, const layers::RouterTrace& trace) {
  std::vector<Tensor> ids;
  for (const layers::RouterTrace::Router& router : trace.routers) ids.push_back(router.ids.on({}));
  int64_t row = 0;
  for (const ScheduledPart& part : parts) {
    Sequence& sequence = *part.sequence;
    const bool records = sequence.request().record_experts;
    std::vector<int32_t>& experts = sequence.result().experts;
    if (records && sequence.computed == 0) experts.clear();  // computed again
    for (int64_t i = 0; i < part.tokens; ++i, ++row)
      for (const Tensor& router : ids) {
        const int32_t* const chosen = router.data<int32_t>() + row * router.dim(1);
        if (records) experts.insert(experts.end(), chosen, chosen + router.dim(1));
      }
  }
}

}  // namespace temper::rollout
