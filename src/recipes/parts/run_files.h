#pragma once
#include <string>

#include "base/files.h"

namespace temper::recipes {

// Where a run keeps what it makes.
struct RunFiles {
  std::string folder;
  std::string config() const { return join_path(folder, "config.yaml"); }
  std::string kernels() const { return join_path(folder, "kernels.json"); }
  std::string algorithms() const { return join_path(folder, "algorithms.json"); }  // chosen by timing
  std::string layout() const { return join_path(folder, "layout.json"); }          // of several ranks
  std::string console() const { return join_path(folder, "console.log"); }
  std::string metrics() const { return join_path(folder, "metrics.jsonl"); }
  std::string events() const { return join_path(folder, "tensorboard"); }
  std::string from() const { return join_path(folder, "from"); }  // a copy of what an adapter started from
  std::string calibration() const { return join_path(folder, "calibration"); }  // of what is not trained
  std::string states() const { return join_path(folder, "checkpoints"); }
  std::string model() const { return join_path(folder, "model"); }
  std::string adapter() const { return join_path(folder, "adapter"); }
  std::string critic() const { return join_path(folder, "critic"); }
  std::string best() const { return join_path(folder, "best"); }
  std::string curve() const { return join_path(folder, "loss.svg"); }
  std::string trace() const { return join_path(folder, "trace.json"); }
  std::string summary() const { return join_path(folder, "summary.json"); }
};

}  // namespace temper::recipes
