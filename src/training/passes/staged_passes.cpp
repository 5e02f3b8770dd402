#include "training/passes/staged_passes.h"

#include <algorithm>

#include "base/tracing/trace.h"
#include "parallel/model_parts.h"
#include "parallel/pipeline/transfers.h"

namespace temper::training {
namespace {

using parallel::Act;
using parallel::Action;
using parallel::PipelineShape;

bool is_of_activations(Act act) { return act == Act::kSendActivation || act == Act::kReceiveActivation; }

// The first of the last backward passes of the chunks, whose gradients are complete when they have ended.
std::span<const Action>::iterator first_of_last_backward(std::span<const Action> actions, int chunks) {
  auto first = actions.end();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const auto found = std::find_if(actions.rbegin(), actions.rend(), [&](const Action& action) {
      return action.chunk == chunk && (action.act == Act::kBackward || action.act == Act::kBackwardInput);
    });
    if (found != actions.rend()) first = std::min(first, std::prev(found.base()));
  }
  return first;
}

}  // namespace

parallel::PipelineCosts stage_costs(const layers::Decoder& model, const TrainerOptions& options,
                                    bool frozen) {
  const layers::ModelStages& stages = model.ranks().stages;
  if (stages.count() == 1) return {};
  return parallel::pipeline_costs(model.config(), stages.count(), stages.chunks(),
                                  {frozen, options.checkpointing == Checkpointing::kFull}, model.device());
}

void read_passes(const layers::Decoder& model, size_t batches, StagedPasses::Work work) {
  const layers::ModelStages& stages = model.ranks().stages;
  if (stages.count() > 1) return StagedPasses(stages, model.device(), {}, std::move(work)).read(batches);
  for (size_t batch = 0; batch < batches; ++batch) {
    Tape tape(false);
    work.forward(tape, batch, {});
  }
}

std::optional<StageTimes> StagedPasses::train(size_t batches, const Plan& plan, const LastBackward& last) {
  if (batches == 0) return std::nullopt;
  const PipelineShape shape{stages_.count(), stages_.chunks(), static_cast<int>(batches), plan.first_trained};
  const auto [schedule, timeline] = parallel::plan_pipeline(plan.kind, shape, plan.costs, waiting_);
  times_.start(timeline.bubble_share());
  const Actions actions = schedule.ranks[static_cast<size_t>(stages_.place())];
  const auto first = first_of_last_backward(actions, stages_.chunks());
  run(shape, {actions.begin(), first});
  if (last.begin) last.begin();
  after_each_ = last.after_each;
  run(shape, {first, actions.end()});
  wait_for(transfers_.last());
  passing_.clear();
  times_.stop();
  return times_;
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
  wait_for(transfers_.last());
}

// Transfers that stand next to each other progress together.
void StagedPasses::run(const PipelineShape& shape, Actions actions) {
  for (auto at = actions.begin(); at != actions.end();) {
    if (parallel::is_transfer(at->act)) {
      const auto end = std::find_if(at, actions.end(),
                                    [](const Action& action) { return !parallel::is_transfer(action.act); });
      exchange(shape, {at, end});
      at = end;
      continue;
    }
    compute(shape, *at++);
  }
}

void StagedPasses::compute(const PipelineShape& shape, const Action& action) {
  if (action.act == Act::kForward) return forward(shape, action);
  const trace::Span span("backward");
  action.act == Act::kBackwardWeight ? passing(action).later.compute(after_each_) : backward(action);
}

// Of a part before which nothing is trained no gradient of its input is asked for.
void StagedPasses::forward(const PipelineShape& shape, const Action& action) {
  const trace::Span span("forward");
  const int part = shape.part(stages_.place(), action.chunk);
  Passing& own = passing(action);
  TapeOptions options = tape_;
  options.recording = comes_back(shape, part);
  own.tape = std::make_unique<Tape>(options);
  if (part > 0) {
    wait_for(own.transfer);
    own.input = comes_back(shape, part - 1) ? own.tape->variable(std::move(own.received))
                                            : own.tape->constant(std::move(own.received));
    own.received = {};
  }
  own.output = work_.forward(*own.tape, static_cast<size_t>(action.micro_batch), {part, own.input});
  if (!comes_back(shape, part) && part + 1 == stages_.num_parts()) passing_.erase(key_of(action));
}

// Of several adapters, a micro-batch may have rows of one alone that trains nothing here.
void StagedPasses::backward(const Action& action) {
  Passing& own = passing(action);
  wait_for(own.transfer);
  const LaterGradients::Scope scope(action.act == Act::kBackwardInput ? &own.later : nullptr);
  if (own.output.requires_grad())
    own.tape->backward(own.output, std::exchange(own.gradient, {}), after_each_);
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
        .push_back({names.back(), sends ? sent(shape, action) : received(action), shape.rank_of(other)});
  }
  const trace::Span span("transfers of stages", [] { return trace::OpWork{}; });
  times_.start_waiting();
  const int64_t begun = transfers_.begin(out, in);
  times_.stop_waiting();
  for (const Action& action : transfers)
    if (!parallel::is_send(action.act)) passing(action).transfer = begun;
}

void StagedPasses::wait_for(int64_t transfer) {
  if (transfers_.is_done(transfer)) return;
  times_.start_waiting();
  transfers_.wait_for(transfer);
  times_.stop_waiting();
}

Tensor StagedPasses::sent(const PipelineShape& shape, const Action& action) {
  Passing& own = passing(action);
  if (action.act == Act::kSendActivation) {
    const Tensor activation = own.output.value.contiguous();
    if (!comes_back(shape, shape.part(stages_.place(), action.chunk))) passing_.erase(key_of(action));
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
