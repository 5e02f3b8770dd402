#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "recipes/learner/learner_metrics.h"
#include "recipes/learner/update_schedule.h"
#include "recipes/parts/run_curves.h"
#include "recipes/setup/exact_match.h"
#include "training/adapter_trainer.h"

namespace temper::recipes {

// One thing that a run trains, the whole model or one of its adapters, with a configuration, data, an
// optimizer, checkpoints and an output folder of its own.
class Learner {
 public:
  // `config`: the run of this learner as if it were alone (run_of_adapter). `setup` must outlive it.
  Learner(const RunSetup& setup, RunConfig config, DataSets data);

  const LearnerInputs& inputs() const { return inputs_; }
  const UpdateSchedule& schedule() const { return schedule_; }
  std::string name() const { return inputs_.name(); }
  bool is_adapter() const { return inputs_.is_adapter(); }
  const RunConfig& config() const { return inputs_.config; }
  const RunFiles& files() const { return inputs_.files; }
  const DataSets& data() const { return inputs_.data; }
  BatchInputs batch_inputs() const { return inputs_.for_batches(adapter_.get()); }  // behind build()
  const layers::Adapter* adapter() const { return adapter_.get(); }  // null: the model is trained
  const layers::ParameterStore& trained() const {
    return adapter_ ? adapter_->parameters() : inputs_.setup.model->decoder.parameters();
  }
  const std::vector<data::PackedRow>& rows() const { return batch_.rows; }  // of read_batch()
  int64_t step() const { return progress_.step; }
  int64_t total_steps() const { return schedule_.total_steps(); }
  bool is_done() const { return stopped_ || progress_.step >= total_steps(); }
  // What is trained, behind LearnerFolder::open(): the adapter, objective, optimizer and trainer.
  void build();
  // Behind it: data, checkpoint, and a first accuracy where it is asked for.
  void start();

  // Reads the rows of the next step. An Error leaves the learner as it was before.
  void read_batch();
  void put_back_batch();  // that was read, and is not learnt from before the next checkpoint
  // Whether this update leaves the learner's own weights as they are, because its critic warms up; and that
  // update.
  bool is_held() const { return schedule_.is_held(progress_.step); }
  training::PendingStep begin_held() const { return {batch_.rows, 1, inputs_.data_ranks()}; }
  training::PendingStep begin_alone();        // of the whole model
  training::AdapterShare share() const;       // of an adapter
  void begun(training::PendingStep pending);  // the step of these rows

  // Waits for the step that was begun and writes its metrics; nothing when there is none.
  std::optional<UpdateReport> report(double peak_flops);

  void owe_evaluation() { progress_.owes_evaluation = true; }
  bool owes_evaluation() const { return progress_.owes_evaluation; }
  void evaluate();
  void check_replicas() const;  // what ranks hold alike (parallel/replicas.h)
  bool is_unsaved() const { return asked_step_ != progress_.step; }
  int64_t saved_step() const { return saved_step_; }
  // A checkpoint, in three parts (Saver). What is to be written, unless this step was asked for already;
  // `copy`: as it is now, whatever training changes afterwards.
  void prepare_save(bool again, bool copy);
  // This rank's files, aside; by any thread. Nothing is thrown: an error waits for commit_save(). No file is
  // begun any more when it is given up.
  void write_save(const std::atomic<bool>& given_up) noexcept;
  void commit_save();  // syncs the numbers, and gives it its name; all ranks call it
  void prune() const;  // rank 0 removes old checkpoints
  void finish();       // the result, metrics and summary
  // Ends training here, for the summary's reason. By data: what was learnt is worth saving, and training can
  // resume with corrected rows. Otherwise the last step diverged, and what is in memory is worth nothing.
  void stop(const std::string& reason, bool by_data);
  const std::string& stop_reason() const { return stop_reason_; }

  // What build() does, to measure updates: stores nothing in the folder (Recipe::measured).
  void build_to_measure();
  void take_rows(std::vector<data::PackedRow> rows) { batch_.rows = std::move(rows); }  // of the next step
  void check_rows() const;  // an Error when the objective cannot judge these

 private:
  // A checkpoint that has no name yet.
  struct Save {
    int64_t step = 0;
    checkpoints::SharedState files;
    checkpoints::OwnedTensors tensors, quantizers, critic;  // of this rank
    Json state;                                             // of rank 0
    int64_t best_step = -1;                                 // that stays on disk besides
  };

  void read_eval_rows();
  // Of the rows that rank 0 reads this rank's.
  std::vector<data::PackedRow> shared_rows(std::string_view name,
                                           const std::function<std::vector<data::PackedRow>()>& read) const;
  bool restore();
  Json state_to_save() const;
  void build_with(Recipe::MakeObjective make_objective);  // null: none
  void make_adapter();
  void make_trainer();
  void ask(const char* when, double& accuracy);
  // `whole`: gives a trained parameter by its place, where ranks hold parts
  // (checkpoints/states/placed_tensors.h).
  using Whole = std::function<Tensor(size_t)>;
  void write_result(const collectives::Root& root, const Whole& whole);
  void save_critic();
  void save_result(const std::string& folder, const Whole& whole) const;
  // Rank 0 runs it with such a function, beside the others.
  void with_whole(const std::function<void(const collectives::Root&, const Whole&)>& use) const;
  void say_where_the_best_is() const;
  Json summary(const RunCurves& curves) const;

  const LearnerInputs inputs_;
  UpdateSchedule schedule_;
  std::unique_ptr<layers::Adapter> adapter_;
  std::shared_ptr<const training::Objective> objective_;
  std::unique_ptr<optimizers::AdamW> optimizer_;
  std::unique_ptr<training::Trainer> trainer_;  // of the whole model
  LearnerProgress progress_;
  LearnerMetrics metrics_;
  PendingUpdate update_;
  int64_t asked_step_ = 0, saved_step_ = 0;  // of the last checkpoint that is written or was; that was
  int64_t kept_step_ = -1;                   // besides the newest
  checkpoints::StagedOwner owner_of_states_;
  std::optional<Save> prepared_;
  bool stopped_ = false, diverged_ = false;
  bool was_finished_ = false;  // before this process
  std::string stop_reason_;
  double accuracy_after_ = -1;
  data::Batch batch_;
  Json read_at_;                    // with an objective: the data's state before the batch that was read last
  std::optional<Json> refused_at_;  // the same of a batch that is not learnt from
  double data_wait_ = 0;
  std::vector<data::PackedRow> eval_rows_;
  std::vector<Answer> answers_;
  std::optional<int32_t> ending_;  // of what is taught, that generation does not stop at (taught_ending.h)
  std::unique_ptr<BatchSource> batches_;
};

}  // namespace temper::recipes
