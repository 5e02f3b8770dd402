#pragma once
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/repeated_work.h"
#include "training/passes/cuda_graph.h"
#include "training/passes/micro_batch.h"
#include "training/passes/stage_times.h"

namespace temper::training {

// What one step reads from the CPU, and what it leaves on the device.
struct StepData {
  std::vector<MicroBatch> batches;
  HostValue<float> scale = 1.f;           // of the loss
  HostValue<float> inverse_tokens = 1.f;  // of the load balancing loss

  struct Output {
    Tensor loss, nll, z;  // [1], [tokens] and [1]; nll only where it is wanted, z with a z-loss
    std::shared_ptr<layers::RouterTrace> routers;  // of a mixture
    Tensor balance;                                // [1]: what its routers add to the loss
    size_t batch = 0;                              // whose it is
  };
  std::optional<StageTimes> stage_times;  // of several stages
  std::vector<Output> outputs;            // of each micro-batch, or of the parts of it that are here
  Tensor grad_norm;                       // [1]
  bool updates = false;                   // the step has begun to change weights and moments
};

// What became of the steps so far.
struct GraphCounts {
  int64_t graphs = 0;   // captured
  int64_t steps = 0;    // all
  int64_t replays = 0;  // steps that were one launch of a graph
  std::string why_not;  // a sentence, where no step will be captured any more
};

// "CUDA graphs: 497 of 500 steps were launches of 2 graphs", or why none was.
std::string describe(const GraphCounts& counts);

// Runs steps, and captures those that come again with the same shape: of the same number of micro-batches,
// tokens, documents (rounded up) and whatever else kernels took for granted. All of them share one arena. The
// bits are those of the plain step.
class StepGraphs {
 public:
  using Work = std::function<void(StepData&)>;
  // `why_not`: a sentence where this model's steps cannot be captured; an error with kOn.
  StepGraphs(Device device, CudaGraph choice, std::string why_not, Work work);
  ~StepGraphs();

  // The results are valid until the next run. `flops`: of the whole step.
  const StepData& run(StepData data, double flops);
  const GraphCounts& counts() const { return counts_; }

 private:
  struct Variant;
  const StepData& run_plain(StepData data);
  Variant& variant_for(StepData data);
  bool wanted(double flops) const;
  void give_up(const std::string& reason);

  const Device device_;
  const CudaGraph choice_;
  const Work work_;
  GraphCounts counts_;
  std::shared_ptr<Arena> arena_;
  std::list<std::unique_ptr<Variant>> variants_;  // the one used last first
  StepData plain_;
};

}  // namespace temper::training
