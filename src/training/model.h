#pragma once
#include <string>
#include <vector>

#include "layers/parameters/parameters.h"
#include "training/passes/last_backward.h"
#include "training/passes/step_result.h"
#include "training/step_graphs.h"

namespace temper::training {

// What a trainer trains: rows in, loss out. A model knows what its rows mean and how their loss comes about;
// the trainer cuts an update into micro-batches, runs backward, sums gradients over the ranks, clips,
// updates, and captures all of that in a graph. A new kind of model (an encoder, a denoiser) implements this.
class Model {
 public:
  virtual ~Model() = default;

  virtual layers::ParameterStore& parameters() = 0;
  // Why the work of a step cannot be captured in a graph, as a clause; empty where it can.
  virtual std::string why_not_captured() const = 0;
  // The micro-batches of these rows of this rank, of at most `max_tokens` tokens each (0: no limit) and at
  // least one row. Ranks that compute every pass together get equally many.
  virtual std::vector<MicroBatch> cut(const std::vector<data::PackedRow>& rows, int64_t max_tokens) const = 0;
  // Floating-point operations of a forward and backward pass over the micro-batch.
  virtual double training_flops(const MicroBatch& batch) const = 0;

  // One step calls these in this order. All but begin_step() and report() are what a graph captures: what
  // they depend on stands in `data` and on the device.

  // The step's rows, and where its results go, which outlives the step's passes.
  virtual void begin_step(const std::vector<data::PackedRow>& rows, PendingStep& pending) = 0;
  virtual void begin_passes(const StepData& data) = 0;
  // The loss of data.batches[batch], [1] float32, whose gradients add up over the micro-batches of all ranks
  // to those of the update. What is to be reported is appended to data.outputs.
  virtual Var loss(Tape& tape, StepData& data, size_t batch) = 0;
  // Where stages of a pipeline have parts of the model: all passes of the step, forward and backward, in
  // place of calls of loss(). False, and nothing is done, where this rank has all of it, or no micro-batch.
  virtual bool pass_stages(StepData& /*data*/, const TapeOptions& /*tape*/, const LastBackward& /*last*/) {
    return false;
  }
  virtual void end_passes() = 0;                  // the gradients of all passes are there after this
  virtual void after_update(StepData& data) = 0;  // the optimizer has changed the parameters
  // What the passes left in `done`, to be read when the device has computed it.
  virtual void report(const StepData& done, PendingStep& pending) const = 0;

  virtual EvalResult evaluate(const std::vector<data::PackedRow>& rows) const = 0;
};

}  // namespace temper::training
