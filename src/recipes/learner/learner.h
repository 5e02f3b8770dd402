#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "recipes/learner/held_out_rows.h"
#include "recipes/learner/learner_checkpoints.h"
#include "recipes/learner/learner_summary.h"
#include "recipes/learner/result_folders.h"
#include "recipes/learner/update_rows.h"

namespace temper::recipes {

// One thing that a run trains, the whole model or one of its adapters, with a configuration, data, an
// optimizer, checkpoints and an output folder of its own. All ranks call the same functions.
class Learner {
 public:
  // `config`: the run of this learner as if it were alone (run_of_adapter). `setup` must outlive it.
  Learner(const RunSetup& setup, RunConfig config, DataSets data);
  Learner(const Learner&) = delete;  // its parts know where it is
  Learner& operator=(const Learner&) = delete;

  const LearnerInputs& inputs() const { return inputs_; }
  const UpdateSchedule& schedule() const { return schedule_; }
  std::string name() const { return inputs_.name(); }
  bool is_adapter() const { return inputs_.is_adapter(); }
  const RunConfig& config() const { return inputs_.config; }
  const RunFiles& files() const { return inputs_.files; }
  const DataSets& data() const { return inputs_.data; }
  int64_t step() const { return progress_.step; }
  int64_t total_steps() const { return schedule_.total_steps(); }
  bool is_done() const { return ending_.stopped || step() >= total_steps(); }

  // What is trained, behind LearnerFolder::open(). build_to_measure(): to measure updates; stores nothing in
  // the folder (Recipe::measured).
  void build() { trained_ = std::make_unique<TrainedModel>(inputs_, inputs_.recipe().objective); }
  void build_to_measure();
  const TrainedModel& trained() const { return *trained_; }
  // Behind build(): data, checkpoint, and a first accuracy where it is asked for.
  void start();

  // Reads the rows of the next update. An Error leaves the learner as it was before.
  void read_batch();
  UpdateRows& rows() { return rows_; }
  // Whether this update leaves the learner's own weights as they are, because its critic warms up; and that
  // update.
  bool is_held() const { return schedule_.is_held(step()); }
  training::PendingStep begin_held() const { return {rows_.rows(), 1, inputs_.update_ranks()}; }
  training::PendingStep begin_alone() { return trained_->begin(rows_.rows(), schedule_.lr(step())); }
  training::AdapterShare share() const { return trained_->share(rows_.rows(), schedule_.lr(step())); }
  void begun(training::PendingStep pending);  // the update of these rows
  // Waits for the update that was begun and writes its metrics; nothing when there is none.
  std::optional<UpdateReport> report(double peak_flops);

  void set_pending_evaluation() { progress_.pending_evaluation = true; }
  bool has_pending_evaluation() const { return progress_.pending_evaluation; }
  void evaluate();
  void check_replicas() const { trained_->check_replicas(critic(), step()); }

  bool is_unsaved() const { return !checkpoints_.is_asked(step()); }
  LearnerCheckpoints& checkpoints() { return checkpoints_; }
  // What is to be written, unless this step was asked for already (LearnerCheckpoints::prepare).
  void prepare_save(bool again, bool copy);
  void commit_save() { checkpoints_.commit(metrics_); }

  void finish();  // the result, metrics and summary
  // Ends training here, for the summary's reason. By data: the updates so far are worth saving, and training
  // can resume with corrected rows. Otherwise the last step diverged, and what is in memory is worth nothing.
  void stop(const std::string& reason, bool by_data);
  const std::string& stop_reason() const { return ending_.reason; }

 private:
  Critic* critic() const { return rows_.source().critic(); }
  void open_rows();
  bool restore();
  double answer(const char* when);
  Json state_to_save() const;

  const LearnerInputs inputs_;
  UpdateSchedule schedule_;
  LearnerProgress progress_;
  LearnerEnding ending_;
  LearnerMetrics metrics_;
  LearnerCheckpoints checkpoints_;
  PendingUpdate update_;
  std::unique_ptr<TrainedModel> trained_;
  UpdateRows rows_;
  std::optional<HeldOutRows> held_out_;
  std::optional<ResultFolders> results_;
};

}  // namespace temper::recipes
