#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log_file.h"
#include "base/stop_signals.h"
#include "parallel/step_deadline.h"
#include "recipes/learner/learner.h"
#include "recipes/learner/saver.h"
#include "recipes/learner/weight_exchange.h"
#include "recipes/parts/checkpoint_clock.h"
#include "recipes/parts/step_profile.h"
#include "reports/progress.h"
#include "reports/recent_rate.h"

namespace temper::recipes {

struct RunOptions {
  bool dry_run = false;         // check everything, train nothing
  bool explain_memory = false;  // print the table by tag, planned and actual
  bool verbose = false;         // print why each kernel was chosen
  Mesh planned = {};            // of a dry run: the ranks that it plans for, of which this one is alone here
  int64_t profile_steps = 0;    // above 0: trace so many steps, after two to warm up
};

// What the configuration alone says: an Error before anything is started or loaded.
void check_run(const RunConfig& config);

// The dry run of a run on so many ranks, on this one alone.
void plan_run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
              int ranks);

// Of the folders of a run, whichever process wrote them: "Step 40 is saved in runs/a: run the same command to
// resume from it", a line for each that is trained.
std::string what_is_saved(const RunConfig& config);

// The command train: the run that the configuration describes, on these ranks. All of them call it.
void train(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
           collectives::Group& ranks = collectives::alone());

// The loop over the updates of one command, from its configuration to the folder with what was trained. Where
// the learners are adapters, they share every pass through the model.
class TrainingLoop {
 public:
  TrainingLoop(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
               collectives::Group& ranks);
  void run();

 private:
  void begin_and_train();
  bool is_root() const { return setup_.ranks.rank() == 0; }
  void check(const ops::Preferences& preferred, const RunMemory& plan);  // --dry-run
  void share_memory(RunMemory& plan, int64_t limit);
  void state_memory_policy() const;
  std::string estimated_time(double updates);
  double seconds_of_update();
  std::string report_of(const Learner& learner, const Learner::Check& found) const;
  void open_folders();
  void keep_record() const;
  std::string plan_checkpoints();                              // what is saved when
  void compare_kernels(const ops::FieldValues& before) const;  // with those of the folder
  void write_kernels() const;
  void check_kernels(const std::vector<ops::ModuleKernel>& bound) const;  // against those of the beginning
  void quantize_base();                                                   // of adapters
  void check_calibration() const;                                         // that the folder may have of it
  void begin_each(void (Learner::*begin)());
  void train_and_finish(const std::vector<ops::ModuleKernel>& bound);
  void train(const StopSignals& signals);
  void train_one(parallel::StepDeadline& deadline);
  std::vector<Learner*> read_batches();  // of the learners that are not done
  std::vector<training::PendingStep> begin(const std::vector<Learner*>& learners);
  // Waits for the steps begun last, if they have not been reported. What goes wrong waits for settle().
  void report_all();
  bool has_trouble() const { return !failed_.empty() || setup_.kept_errors->any(); }  // this rank
  void settle_if_any();                                                               // all ranks call it
  void settle();  // what some of them, or all, could not do: they end with it, or lose a learner
  void evaluate(const std::vector<Learner*>& learners);
  void evaluate_what_is_owed();
  void evaluate_and_save(bool stopping, bool saving);
  void send_weights(bool resumed);
  [[noreturn]] void end_unsent(const Error& error);
  void show(const std::vector<Learner::Report>& reports);
  int64_t memory_in_use() const;
  void find_peak();
  int64_t plan_disk_of_all(bool between) const;      // bytes; as Learner::plan_disk
  void print(const std::string& text) const;         // a dry run's result
  void explain_memory(const RunMemory& plan) const;  // where it is asked for

  // training_loop_endings.cpp
  void name_what_is_written(const Error& error);
  void save_what_is_learnt();
  [[noreturn]] void end_interrupted(std::string_view when);
  void lose(Learner& learner, const Error& error, bool by_data);
  void fail_if_any_was_lost() const;

  LogFile console_;  // first: it keeps what all others say
  RunOptions options_;
  std::string resolved_yaml_;
  RunSetup setup_;
  RunFiles files_;
  std::optional<FolderLock> lock_;
  std::vector<std::unique_ptr<Learner>> learners_;
  std::vector<std::string> refused_;  // adapters that could not begin, and why
  Saver saver_;
  CheckpointClock clock_;
  WeightExchange exchange_;
  std::map<const Learner*, Error> failed_;              // of reports, until all ranks know
  std::unique_ptr<training::AdapterTrainer> adapters_;  // null: the whole model is trained
  double peak_flops_ = 0;                               // 0: not known
  std::unique_ptr<reports::Progress> progress_;
  reports::RecentRate tokens_, flops_;  // of updates
  std::optional<double> reward_;        // of the newest rollout, where there are any
  StepProfile profile_;
};

}  // namespace temper::recipes
