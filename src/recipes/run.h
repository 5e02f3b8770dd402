#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log_file.h"
#include "recipes/lane.h"
#include "recipes/step_profile.h"
#include "reports/progress.h"
#include "training/signals.h"

namespace temper::recipes {

// Of train: the run as the configuration's recipe says.
void run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options);

// Training, from the configuration to the folder with what was trained: the model, or adapters of it, which
// then share every pass through the model.
class Run {
 public:
  Run(const RunConfig& config, const std::string& resolved_yaml, const RunOptions& options,
      collectives::Group& ranks);
  void run();

 private:
  void begin_and_train();
  void check(const ops::Preferences& preferred, const MemoryPlan& plan);  // --dry-run
  std::string estimated_time(double updates);
  double seconds_of_update();
  void open_folders();
  void store_kernels(const ops::FieldValues& before) const;
  std::string what_is_saved() const;
  void begin_each(void (Lane::*begin)());
  void train();
  void train_one();
  std::vector<Lane*> read_batches();  // of the lanes that go on
  std::vector<training::PendingStep> begin(const std::vector<Lane*>& lanes);
  void report_all();  // waits for the steps begun last, if they have not been reported
  void evaluate_and_save(bool stopping);
  void lose(Lane& lane, const Error& error, bool by_data);
  void show(const std::vector<Lane::Report>& reports);
  int64_t memory_in_use() const;
  void find_peak();
  void fail_if_any_was_lost() const;
  int64_t plan_disk_of_all() const;

  LogFile console_;  // first: it keeps what all others say
  RunOptions options_;
  std::string resolved_yaml_;
  Session session_;
  RunFiles files_;
  std::optional<FolderLock> lock_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::string> refused_;                    // adapters that could not begin, and why
  std::unique_ptr<training::AdapterTrainer> adapters_;  // null: the whole model is trained
  double peak_flops_ = 0;                               // 0: not known
  std::unique_ptr<reports::Progress> progress_;
  StepProfile profile_;
};

}  // namespace temper::recipes
