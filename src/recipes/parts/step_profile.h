#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/group.h"
#include "device/facts.h"
#include "reports/profile.h"
#include "tensor/dtype.h"
#include "training/passes/stage_times.h"

namespace temper::recipes {

// Records some steps of a run, after two that are not: their kernels and memory are not settled yet. All
// ranks record the same steps, and rank 0 writes a file with a lane for each of them.
class StepProfile {
 public:
  StepProfile(int64_t steps, const HardwareFacts& facts, DType dtype, std::string file,
              collectives::Group& ranks)
      : steps_(steps), facts_(facts), dtype_(dtype), file_(std::move(file)), ranks_(ranks) {}
  ~StepProfile();

  void before_step();  // outside of spans; starts the recording, and ends it behind the last of its steps
  void add(const training::PipelineResult& passes);  // of a step of several stages, all ranks'
  void finish();                                     // ends a recording that the run was too short for

 private:
  bool recording() const { return begun_ > kWarmUp && !written_; }
  void write();
  static constexpr int64_t kWarmUp = 2;
  int64_t steps_, begun_ = 0;
  HardwareFacts facts_;
  DType dtype_;
  std::string file_;
  collectives::Group& ranks_;
  bool written_ = false;
  std::vector<training::PipelineResult> passes_;  // by step
};

}  // namespace temper::recipes
