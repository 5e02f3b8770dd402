#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "recipes/learner/learner.h"

namespace temper::recipes {

// What one command trains: the model, or one or several adapters of it. Of several adapters, one that cannot
// start or continue is dropped, and the others are trained to their end. All ranks have the same learners.
class Learners {
 public:
  // `setup`, which must outlive it, has the configuration. Reads the lists of rows; an Error names the
  // adapter whose data are wrong, or says why a result could not be saved.
  explicit Learners(const RunSetup& setup);

  auto begin() const { return learners_.begin(); }  // of std::unique_ptr<Learner>
  auto end() const { return learners_.end(); }
  Learner& front() const { return *learners_.front(); }  // there is always one
  size_t size() const { return learners_.size(); }
  bool are_adapters() const { return front().is_adapter(); }  // otherwise the model is trained
  bool all_done() const;
  // Those that were not stopped and have updates that no checkpoint has.
  std::vector<Learner*> unsaved() const;
  // Of these, the ones that are done or whose step is a multiple of `every_steps` (0: never).
  std::vector<Learner*> due(const std::function<int64_t(const RunConfig&)>& every_steps) const;
  int64_t disk_bytes(bool between) const;  // the sum of plan_disk (recipes/learner/learner_plan.h)
  int64_t checkpoint_bytes() const;        // of one checkpoint of each
  // The first rows that training will see, the same number of each learner.
  std::vector<data::PackedRow> rows_to_calibrate() const;

  // Calls `start` for each learner, on all ranks. Of several adapters, one whose input is wrong is
  // removed with a warning; any other Error is thrown.
  void start_each(const std::function<void(Learner&)>& start);
  // An Error that lists the adapters that did not start or were stopped; nothing where all are done.
  void check_all_completed() const;

 private:
  const RunSetup& setup_;
  std::vector<std::unique_ptr<Learner>> learners_;
  std::vector<std::string> not_started_;  // adapters that were removed, and why
};

}  // namespace temper::recipes
