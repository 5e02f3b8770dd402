#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "recipes/learner/pending_update.h"
#include "reports/progress.h"
#include "reports/recent_rate.h"

namespace temper::recipes {

// The progress line of rank 0: figures of the newest step, tokens per second and model FLOPs utilization over
// the last steps, and memory in use. The other ranks show nothing.
class ProgressReporter {
 public:
  explicit ProgressReporter(const RunSetup& setup) : setup_(setup) {}  // which must outlive it

  // Finds what the hardware reaches in matrix multiplications, and logs the name of a GPU.
  void find_peak_flops();
  double peak_flops() const { return peak_flops_; }  // per second, of one rank's device; 0: unknown

  void begin();
  void show(const std::vector<UpdateReport>& reports);  // of one step; nothing where there are none
  void finish();                                        // leaves the last line on the terminal

 private:
  int64_t memory_in_use() const;  // bytes

  const RunSetup& setup_;
  double peak_flops_ = 0;
  std::unique_ptr<reports::Progress> progress_;  // null: other ranks, before begin() and after finish()
  reports::RecentRate tokens_, flops_;
  std::optional<double> reward_;  // of the newest rollout, where there are any
};

}  // namespace temper::recipes
