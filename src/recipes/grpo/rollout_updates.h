#pragma once
#include <vector>

#include "recipes/grpo/group_selection.h"
#include "recipes/grpo/grpo_keys.h"
#include "recipes/grpo/sample_rows.h"

namespace temper::recipes {

// Whether updates learn from an answer. One that was cut off still counts among the rewards of its group,
// unless the KL lowers these.
bool is_learned_from(const GrpoKeys& keys, const SampledAnswer& sample);

// The answers of a rollout that this rank learns from, and the updates that share them: each has the answers
// of as many groups. The updates of an epoch follow one another, and each epoch has the same ones.
class RolloutUpdates {
 public:
  RolloutUpdates() = default;                  // of no rollout
  RolloutUpdates(RolloutUpdates&&) = default;  // rows refer to samples
  RolloutUpdates& operator=(RolloutUpdates&&) = default;
  // `samples`: of any groups, group after group; those that `selection` leaves out are dropped.
  RolloutUpdates(const RunConfig& config, const GroupSelection& selection,
                 std::vector<SampledAnswer> samples);

  std::vector<SampledAnswer>& samples() { return samples_; }
  const std::vector<SampledAnswer>& samples() const { return samples_; }
  // Of the updates of an epoch: rows whose targets are the tokens of the samples above.
  std::vector<SampleRows>& rows() { return rows_; }
  // The number of tokens that each of them learns from.
  std::vector<int64_t> num_targets() const;
  // Once the samples have their advantages and scores: these are copied to the rows.
  void fill();
  // Of the update with this number, counted through all epochs.
  data::Batch batch(int64_t update) const;

 private:
  std::vector<SampledAnswer> samples_;
  std::vector<SampleRows> rows_;
};

}  // namespace temper::recipes
