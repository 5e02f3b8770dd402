#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "layers/decoder.h"
#include "parallel/pipeline/schedule.h"

namespace temper::training {

// The passes of micro-batches where stages of a pipeline have parts of a model's layers (ModelStages): in the
// order of the schedule 1f1b, or interleaved where a stage has several parts. All stages call the same
// functions, with as many micro-batches.
class StagedPasses {
 public:
  struct Work {
    // What a part of a micro-batch makes: of the last one the loss, of others what the next one needs.
    std::function<Var(Tape& tape, size_t batch, const layers::Decoder::Part& part)> forward;
    std::function<Tensor(size_t batch)> make_input;  // memory for that, as Decoder::make_part_input
  };
  StagedPasses(const layers::ModelStages& stages, const TapeOptions& tape, Work work)
      : stages_(stages), tape_(tape), work_(std::move(work)) {}

  void train(size_t batches);  // forward and backward
  void read(size_t batches);   // forward alone, on tapes that record nothing

 private:
  // A part of a micro-batch between its passes.
  struct Passing {
    std::unique_ptr<Tape> tape;
    Var input, output;          // [the stream's tokens that are here, hidden]; of the last part a scalar
    Tensor received, gradient;  // as the input, and as the output
  };
  using Actions = std::span<const parallel::Action>;

  void run(const parallel::PipelineShape& shape, Actions actions);
  void forward(const parallel::Action& action, int part);
  void backward(const parallel::Action& action);
  void exchange(const parallel::PipelineShape& shape, Actions transfers);
  Tensor sent(const parallel::Action& action);
  Tensor received(const parallel::Action& action);
  static std::pair<int, int> key_of(const parallel::Action& action) {
    return {action.chunk, action.micro_batch};
  }
  Passing& passing(const parallel::Action& action) { return passing_[key_of(action)]; }

  const layers::ModelStages& stages_;
  TapeOptions tape_;
  Work work_;
  std::map<std::pair<int, int>, Passing> passing_;  // by chunk and micro-batch
};

}  // namespace temper::training
