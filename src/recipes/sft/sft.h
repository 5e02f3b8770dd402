#pragma once
#include <string>
#include <vector>

#include "recipes/sft/exact_match.h"
#include "recipes/sft/run_files.h"
#include "recipes/sft/session.h"
#include "recipes/sft/step_profile.h"
#include "reports/metrics.h"
#include "reports/plot.h"
#include "reports/progress.h"
#include "reports/tensorboard.h"
#include "training/signals.h"

namespace temper::recipes {

// Supervised fine-tuning, from the configuration to the folder with the trained model.
class SftRun {
 public:
  SftRun(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options);
  void run();

 private:
  // What a resumed run continues with, besides tensors and the data's position.
  struct State {
    int64_t step = 0;
    int64_t tokens = 0;
    double train_seconds = 0;
    double accuracy_before = -1;
    double best_loss = -1;
    int64_t best_step = -1;
    double last_loss = 0;
  };

  void check() const;  // --dry-run
  void open_folder();
  ops::Preferences preferred_kernels() const;
  void store_kernels(const ops::FieldValues& before) const;
  bool restore();
  void save();
  void train();
  void train_one(int64_t total_steps);
  std::optional<data::Batch> next_batch();
  void report_last();  // waits for the step begun last, if it has not been reported
  void report(const training::StepResult& result, double seconds);
  int64_t memory_in_use() const;
  int64_t peak_memory() const;
  void find_peak();
  void evaluate();
  void ask(const char* when, double& accuracy);
  void finish();
  void draw_curve() const;
  Json summary() const;

  // The step that the device computes while the next one is prepared.
  struct Begun {
    training::PendingStep pending;
    int64_t step = 0, total_steps = 0;
    double lr = 0;
    double data_wait = 0;  // seconds that the data were not ready
  };

  RunOptions options_;
  std::string resolved_yaml_;
  Session session_;
  RunFiles files_;
  State state_;
  int64_t saved_step_ = 0;
  double accuracy_after_ = -1;
  double peak_flops_ = 0;   // 0: not known
  double last_report_ = 0;  // when the step before was done
  std::optional<Begun> begun_;
  std::vector<data::PackedRow> eval_rows_;
  std::vector<Answer> answers_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<reports::MetricsWriter> metrics_;
  std::unique_ptr<reports::TensorBoardWriter> events_;
  std::unique_ptr<reports::Progress> progress_;
  StepProfile profile_;
};

// Keys whose values differ between the configuration of a folder's run and this one, and that would make the
// continued run another run ("train.optimizer.lr: 1e-05, now 2e-05").
std::vector<std::string> conflicting_keys(const std::string& old_yaml_file, const RunConfig& now);

}  // namespace temper::recipes
