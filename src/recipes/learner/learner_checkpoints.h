#pragma once
#include <atomic>
#include <optional>

#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "recipes/learner/learner_metrics.h"
#include "recipes/learner/trained_model.h"
#include "recipes/learner/update_schedule.h"

namespace temper::recipes {

// The checkpoints of a learner: reads the newest one and writes others, which ranks do together. A checkpoint
// is saved in three parts: prepare(), write() and commit() (Saver).
class LearnerCheckpoints {
 public:
  explicit LearnerCheckpoints(const LearnerInputs& inputs) : inputs_(inputs) {}  // which must outlive it

  // Before anything is saved, by all ranks: the tensors of the newest one are read into what is trained and
  // the critic, which may be null. The result is its record, or nothing where there is none. Errors:
  // LearnerFolder's.
  std::optional<Json> restore(const TrainedModel& trained, Critic* critic, const UpdateSchedule& schedule);

  bool is_asked(int64_t step) const { return asked_step_ == step; }  // whether one of it was prepared or read
  int64_t saved_step() const { return saved_step_; }                 // of the last one that is complete
  // What is to be written. `state`: the record, of rank 0. `copy`: as all is now, whatever training changes
  // afterwards.
  void prepare(const LearnerProgress& progress, Json state, const TrainedModel& trained, const Critic* critic,
               bool copy);
  // This rank's files, by any thread. Nothing is thrown: an error waits for commit(). No file is begun any
  // more when it is given up.
  void write(const std::atomic<bool>& given_up) noexcept;
  // Syncs the numbers, and gives it its name. All ranks call it; nothing where none was prepared.
  void commit(LearnerMetrics& metrics);
  void prune() const;  // rank 0 removes old ones

 private:
  // One that has no name yet.
  struct Unnamed {
    int64_t step, best_step;  // best_step stays on disk besides
    Json state;               // of rank 0
    checkpoints::SharedState files;
    checkpoints::OwnedTensors tensors = {}, quantizers = {}, critic = {};  // of this rank
  };

  const LearnerInputs& inputs_;
  int64_t asked_step_ = 0, saved_step_ = 0;
  int64_t kept_step_ = -1;  // besides the newest
  checkpoints::StagedOwner owner_;
  std::optional<Unnamed> prepared_;
};

}  // namespace temper::recipes
