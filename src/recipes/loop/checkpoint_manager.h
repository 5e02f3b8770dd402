#pragma once
#include <string>
#include <vector>

#include "recipes/learner/saver.h"
#include "recipes/loop/learners.h"
#include "recipes/parts/checkpoint_clock.h"

namespace temper::recipes {

// When a run saves checkpoints: at steps, by the wall clock, when a signal asks for it, and at the end.
// Checks that the disk has room for them. Files are written while the run waits, or in the background
// (Saver). All ranks call the functions at the same time, except for those of rank 0 alone.
class CheckpointManager {
 public:
  // Both must outlive it. The clock starts now.
  CheckpointManager(const RunSetup& setup, const Learners& learners);

  // Rank 0, before training: says when checkpoints are saved. Those that are not configured, but saved by
  // default, are left out with a warning if the disk has no room for them; an Error if it has none for the
  // others.
  std::string plan();
  int64_t planned_disk_bytes() const { return learners_.disk_bytes(!clock_.is_left_out()); }

  // Rank 0: whether a checkpoint is due by the wall clock.
  bool is_due_by_time() const;
  // The learners whose checkpoint is due after this update; `all`: every learner that has something to save.
  std::vector<Learner*> due(bool all) const;
  // Saves them together, so that a process that is killed resumes all of them from one step.
  void save(const std::vector<Learner*>& learners);
  // Saves them although a checkpoint of this step exists: its record of the learner is out of date.
  void save_again(const std::vector<Learner*>& learners) { saver_.save(learners, true); }
  // Saves everything that no checkpoint has, and waits until it is written.
  void save_all_and_wait();

  bool is_written() const { return saver_.is_written(); }  // this rank's files
  void commit() { saver_.commit(); }                       // waits, and gives the checkpoint its name
  void finish() { saver_.finish(); }                       // also waits until old checkpoints are removed
  // The same after an Error, where all ranks have it and can still agree; problems are warnings.
  void finish_after(const Error& error);

 private:
  const RunSetup& setup_;
  const Learners& learners_;
  Saver saver_;
  CheckpointClock clock_;
};

}  // namespace temper::recipes
