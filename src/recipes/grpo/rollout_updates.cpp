#include "recipes/grpo/rollout_updates.h"

#include <algorithm>
#include <cmath>

namespace temper::recipes {

bool is_learned_from(const GrpoKeys& keys, const SampledAnswer& sample) {
  return !std::isnan(sample.reward) &&
         !(sample.is_truncated() && keys.filter.on_truncated == FilterKeys::OnTruncated::kDrop);
}

RolloutUpdates::RolloutUpdates(const RunConfig& config, const GroupSelection& selection,
                               std::vector<SampledAnswer> samples)
    : samples_(std::move(samples)) {
  const GrpoKeys& keys = grpo_keys(config);
  std::erase_if(samples_, [&](const SampledAnswer& sample) { return selection.place_of(sample.group) < 0; });
  const int64_t groups = keys.prompts_per_rollout / keys.updates_per_rollout;
  for (int64_t update = 0; update < keys.updates_per_rollout; ++update) {
    std::vector<SampledAnswer*> own;
    for (SampledAnswer& sample : samples_)
      if (selection.place_of(sample.group) / groups == update && is_learned_from(keys, sample))
        own.push_back(&sample);
    rows_.push_back(rows_of(own, config.data.max_length, config.data.packing, keys.engine.share_prompts));
  }
}

std::vector<int64_t> RolloutUpdates::num_targets() const {
  std::vector<int64_t> counts;
  for (const SampleRows& update : rows_) counts.push_back(std::ssize(update.targets));
  return counts;
}

void RolloutUpdates::fill() {
  for (SampleRows& update : rows_) update.fill();
}

data::Batch RolloutUpdates::batch(int64_t update) const {
  return batch_of(rows_[static_cast<size_t>(update % std::ssize(rows_))].rows);
}

}  // namespace temper::recipes
