#include "recipes/loop/checkpoint_manager.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoints/states/training_state.h"
#include "collectives/at_root.h"

namespace temper::recipes {

CheckpointManager::CheckpointManager(const RunSetup& setup, const Learners& learners)
    : setup_(setup),
      learners_(learners),
      saver_(setup.ranks, *setup.kept_errors, setup.config.checkpoint.async),
      clock_(setup.config.checkpoint, seconds_now()) {}

std::string CheckpointManager::plan() {
  const std::string& folder = setup_.config.output;
  const std::string warning =
      clock_.leave_out(free_disk_bytes(folder), learners_.disk_bytes(true), learners_.disk_bytes(false));
  if (!warning.empty()) log_warning(warning);
  checkpoints::require_free_disk(folder, planned_disk_bytes());
  return clock_.describe(learners_.checkpoint_bytes());
}

bool CheckpointManager::is_due_by_time() const { return clock_.is_due(seconds_now()); }

std::vector<Learner*> CheckpointManager::due(bool all) const {
  if (all) return learners_.unsaved();
  return learners_.due([](const RunConfig& config) { return config.checkpoint.every_steps.value_or(0); });
}

void CheckpointManager::save(const std::vector<Learner*>& learners) {
  for (const Learner* learner : learners) learner->check_replicas();
  if (learners.empty()) return;
  const double start = seconds_now();
  saver_.save(learners);
  clock_.saved(start, seconds_now());
}

void CheckpointManager::save_all_and_wait() {
  saver_.save(learners_.unsaved());
  saver_.finish();
}

void CheckpointManager::finish_after(const Error& error) {
  if (!collectives::is_of_all(setup_.ranks, error)) return;
  try {
    saver_.finish();
  } catch (const Error& other) {
    log_warning(other.what());
  }
}

}  // namespace temper::recipes
