#pragma once
#include <string>
#include <vector>

#include "base/signals/stop_signals.h"
#include "parallel/step_deadline.h"
#include "recipes/loop/evaluator.h"
#include "recipes/loop/options.h"
#include "recipes/loop/run_folder.h"
#include "recipes/loop/train_step.h"
#include "recipes/loop/weight_sync.h"
#include "recipes/parts/step_profile.h"

namespace temper::recipes {

// The loop over the updates of one command, from its configuration to the folder with what was trained. All
// ranks run it.
class TrainingLoop {
 public:
  TrainingLoop(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
               collectives::Group& ranks);
  void run();

 private:
  // What ranks decide together after each update.
  struct Requests {
    bool stop = false;        // a rank has a signal
    bool save = false;        // a checkpoint is due by the wall clock
    bool commit = false;      // all ranks have written the checkpoint that is under way
    bool has_errors = false;  // of any rank
  };

  void prepare_and_train();
  void open_folder();
  void load_model(const ops::Preferences& preferred);
  void start_learners();
  void train_and_finish(const std::vector<ops::ModuleKernel>& kernels);
  void train(const StopSignals& signals);
  void train_one_step();
  std::vector<Learner*> read_batches();  // of the learners that are not done
  Requests requests_of_all_ranks(const StopSignals& signals);
  void evaluate_and_save(bool save_all);
  void send_weights(bool resumed);

  RunFolder folder_;  // first: it keeps what all others log
  RunOptions options_;
  RunSetup setup_;
  Learners learners_;
  CheckpointManager checkpoints_;
  ProgressReporter progress_;
  StepProfile profile_;
  StepResults results_;
  RunEnding ending_;
  Evaluator evaluator_;
  WeightSync weight_sync_;
  TrainStep step_;
  parallel::StepDeadline deadline_;
};

}  // namespace temper::recipes
