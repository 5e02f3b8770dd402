#pragma once
#include <cstdint>
#include <optional>

#include "recipes/learner/learner_inputs.h"

namespace temper::recipes {

// How many updates a learner makes, and the learning rate of each.
class UpdateSchedule {
 public:
  // `inputs` must outlive it. An Error where one update would read the data many times.
  explicit UpdateSchedule(const LearnerInputs& inputs);

  // The first of these estimates the updates of an epoch where the configuration counts epochs: it reads
  // rows.
  int64_t total_steps() const;
  double lr(int64_t step) const;  // of update number `step`, from 0

  // The first updates leave the learner's own weights as they are, while its critic warms up.
  void hold(int64_t updates) { held_updates_ = updates; }
  bool is_held(int64_t step) const { return step < held_updates_; }
  int64_t made_of(int64_t step) const {
    return std::max<int64_t>(0, step - held_updates_);
  }  // of its weights

  void warn_of_keys_without_effect() const;
  // `state`: of the checkpoint of `step`, written by a run with another schedule or with another number of
  // updates. States of older versions do not contain the rate that would have come.
  void warn_of_jump(int64_t step, const Json& state) const;

 private:
  const LearnerInputs& inputs_;
  int64_t held_updates_ = 0;
  mutable std::optional<int64_t> estimated_steps_;
};

}  // namespace temper::recipes
