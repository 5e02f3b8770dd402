#pragma once
#include <optional>
#include <string>

#include "base/files.h"
#include "base/log_file.h"
#include "ops/selection.h"
#include "recipes/loop/learners.h"

namespace temper::recipes {

// The folder of a run while a process trains in it: its lock, console.log, and the records of what the run
// was: config.yaml, kernels.json and layout.json. From its construction on it keeps what is logged, for
// console.log. Rank 0 alone calls the functions.
class RunFolder {
 public:
  RunFolder(const std::string& folder, const std::string& resolved_yaml)
      : files_{folder}, resolved_yaml_(resolved_yaml) {}

  const RunFiles& files() const { return files_; }
  // Makes and locks the folder, and begins console.log. An Error where another process has it, or where its
  // calibration is that of other quantizers than the configuration's.
  void open(const RunConfig& config);
  // Makes the folders of the learners; config.yaml is written unless there are checkpoints to resume from.
  void open_learners(const RunConfig& config, const Learners& learners) const;
  // Once all learners have started or resumed: writes config.yaml, kernels.json and layout.json again.
  void write_records(const RunSetup& setup, const Learners& learners) const;
  void write_kernels(const RunSetup& setup) const;
  // A warning for each kernel that is another one than `before`: the run resumes, but not bit for bit.
  void warn_of_other_kernels(const ops::BoundOps& ops, const ops::FieldValues& before) const;

 private:
  void check_calibration(const RunConfig& config) const;

  LogFile console_;
  RunFiles files_;
  std::string resolved_yaml_;
  std::optional<FolderLock> lock_;
};

}  // namespace temper::recipes
