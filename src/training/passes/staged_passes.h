#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/later_gradients.h"
#include "layers/decoder.h"
#include "parallel/pipeline/pipeline_plan.h"
#include "parallel/pipeline/stage_transfers.h"
#include "training/passes/last_backward.h"
#include "training/passes/stage_times.h"
#include "training/passes/trainer_options.h"

namespace temper::training {

// The passes of micro-batches where stages of a pipeline have parts of a model's layers (ModelStages), in the
// order of a schedule. All stages call the same functions, with as many micro-batches.
// An object is for one call of train() or read().
class StagedPasses {
 public:
  struct Work {
    // What a part of a micro-batch makes: of the last one the loss, of others what the next one needs.
    std::function<Var(Tape& tape, size_t batch, const layers::Decoder::Part& part)> forward;
    std::function<Tensor(size_t batch)> make_input;  // memory for that, as Decoder::make_part_input
  };
  // `device`: of the model.
  StagedPasses(const layers::ModelStages& stages, Device device, const TapeOptions& tape, Work work)
      : stages_(stages),
        tape_(tape),
        work_(std::move(work)),
        waiting_(parallel::waiting_of(is_apart(device))),
        transfers_(stages.ranks->pairs()),
        times_(device) {}

  // How stages train, which all of them say alike.
  struct Plan {
    parallel::ScheduleKind kind = parallel::ScheduleKind::k1F1B;
    const parallel::PipelineCosts& costs;
    int first_trained = 0;  // the part before which nothing is trained
  };
  // Forward and backward. Nothing without micro-batches.
  std::optional<StageTimes> train(size_t batches, const Plan& plan, const LastBackward& last = {});
  void read(size_t batches);  // forward alone, on tapes that record nothing

 private:
  // A part of a micro-batch between its passes.
  struct Passing {
    std::unique_ptr<Tape> tape;
    Var input, output;          // [the stream's tokens that are here, hidden]; of the last part a scalar
    Tensor received, gradient;  // as the input, and as the output
    int64_t transfer = 0;       // that brings the next of them
    LaterGradients later;       // of weights, between the two parts of its backward pass
  };
  using Actions = std::span<const parallel::Action>;

  void run(const parallel::PipelineShape& shape, Actions actions);
  void compute(const parallel::PipelineShape& shape, const parallel::Action& action);
  void forward(const parallel::PipelineShape& shape, const parallel::Action& action);
  void backward(const parallel::Action& action);
  void exchange(const parallel::PipelineShape& shape, Actions transfers);
  void wait_for(int64_t transfer);
  Tensor sent(const parallel::PipelineShape& shape, const parallel::Action& action);
  Tensor received(const parallel::Action& action);
  bool comes_back(const parallel::PipelineShape& shape, int part) const {
    return tape_.recording && shape.is_trained(part);
  }
  static std::pair<int, int> key_of(const parallel::Action& action) {
    return {action.chunk, action.micro_batch};
  }
  Passing& passing(const parallel::Action& action) { return passing_[key_of(action)]; }

  const layers::ModelStages& stages_;
  TapeOptions tape_;
  Work work_;
  parallel::Waiting waiting_;
  parallel::StageTransfers transfers_;
  StageTimes times_;
  std::function<void()> after_each_;                // closure of a backward pass; null: nothing
  std::map<std::pair<int, int>, Passing> passing_;  // by chunk and micro-batch
};

// Passes without gradients over this many micro-batches: one after the other where one rank has all layers,
// otherwise by the model's stages. All of these call it, with as many.
void read_passes(const layers::Decoder& model, size_t batches, StagedPasses::Work work);

// What the parts of a model cost whose stages train it; of one stage nothing. `frozen`: adapters alone.
parallel::PipelineCosts stage_costs(const layers::Decoder& model, const TrainerOptions& options, bool frozen);

}  // namespace temper::training
