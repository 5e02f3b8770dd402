#include "training/passes/staged_passes.h"

#include <algorithm>

#include "base/tracing/trace.h"
#include "parallel/pipeline/transfers.h"

namespace temper::training {
namespace {

using parallel::Act;
using parallel::Action;
using parallel::PipelineShape;

bool is_of_activations(Act act) { return act == Act::kSendActivation || act == Act::kReceiveActivation; }

}  // namespace

void StagedPasses::train(size_t batches) {
  if (batches == 0) return;
  using Kind = parallel::ScheduleKind;
  const PipelineShape shape{stages_.count(), stages_.chunks(), static_cast<int>(batches)};
  const parallel::Schedule schedule =
      parallel::make_schedule(shape.chunks > 1 ? Kind::kInterleaved : Kind::k1F1B, shape);
  run(shape, schedule.ranks[static_cast<size_t>(stages_.place())]);
}

void StagedPasses::read(size_t batches) {
  if (batches == 0) return;
  tape_ = {.recording = false};
  const PipelineShape shape{stages_.count(), stages_.chunks(), static_cast<int>(batches)};
  std::vector<Action> passes;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int batch = 0; batch < shape.micro_batches; ++batch) passes.push_back({Act::kForward, batch, chunk});
  const std::vector<std::vector<Action>> all(static_cast<size_t>(shape.stages), passes);
  run(shape, parallel::with_transfers(shape, all, {})[static_cast<size_t>(stages_.place())]);
}

// Transfers that stand next to each other progress together.
void StagedPasses::run(const PipelineShape& shape, Actions actions) {
  passing_.clear();  // of passes that did not end
  for (auto at = actions.begin(); at != actions.end();) {
    if (parallel::is_transfer(at->act)) {
      const auto end = std::find_if(at, actions.end(),
                                    [](const Action& action) { return !parallel::is_transfer(action.act); });
      exchange(shape, {at, end});
      at = end;
      continue;
    }
    if (at->act == Act::kForward)
      forward(*at, shape.part(stages_.place(), at->chunk));
    else
      backward(*at);
    ++at;
  }
  passing_.clear();
}

void StagedPasses::forward(const Action& action, int part) {
  Passing& own = passing(action);
  own.tape = std::make_unique<Tape>(tape_);
  if (part > 0) {
    own.input = tape_.recording ? own.tape->variable(std::move(own.received))
                                : own.tape->constant(std::move(own.received));
    own.received = {};
  }
  own.output = work_.forward(*own.tape, static_cast<size_t>(action.micro_batch), {part, own.input});
  if (!tape_.recording && part + 1 == stages_.num_parts()) passing_.erase(key_of(action));
}

// Nothing before the first trained parameter needs a gradient.
void StagedPasses::backward(const Action& action) {
  const trace::Span span("backward");
  Passing& own = passing(action);
  if (own.output.requires_grad()) own.tape->backward(own.output, std::exchange(own.gradient, {}));
  own.tape.reset();
  own.output = {};
  own.gradient = {};
}

void StagedPasses::exchange(const PipelineShape& shape, Actions transfers) {
  std::vector<std::string> names;
  names.reserve(transfers.size());
  std::vector<collectives::Transfer> out, in;
  for (const Action& action : transfers) {
    const int part = shape.part(stages_.place(), action.chunk);
    const bool sends = parallel::is_send(action.act), activations = is_of_activations(action.act);
    const int other = sends == activations ? part + 1 : part - 1;
    names.push_back(fmt::format("{} of micro-batch {} for part {}",
                                activations ? "activations" : "the gradient", action.micro_batch,
                                sends ? other : part));
    (sends ? out : in)
        .push_back({names.back(), sends ? sent(action) : received(action), shape.rank_of(other)});
  }
  stages_.ranks->pairs().exchange(out, in);
}

Tensor StagedPasses::sent(const Action& action) {
  Passing& own = passing(action);
  if (action.act == Act::kSendActivation) {
    const Tensor activation = own.output.value.contiguous();
    if (!tape_.recording) passing_.erase(key_of(action));  // nothing comes back to it
    return activation;
  }
  const Tensor gradient = own.input.slot->take();
  const DType dtype = own.input.dtype();
  own.input = {};
  if (gradient.defined()) return gradient.contiguous().to(dtype);
  const Tensor none = work_.make_input(static_cast<size_t>(action.micro_batch));
  none.fill_zero();
  return none;
}

Tensor StagedPasses::received(const Action& action) {
  Passing& own = passing(action);
  Tensor& memory = action.act == Act::kReceiveActivation ? own.received : own.gradient;
  return memory = work_.make_input(static_cast<size_t>(action.micro_batch));
}

}  // namespace temper::training
