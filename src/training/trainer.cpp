#include "training/trainer.h"

#include "base/trace.h"
#include "layers/glue.h"
#include "ops/global_norm/global_norm.h"
#include "primitives/expert_counts.h"
#include "training/flops.h"

namespace temper::training {

static_assert(data::kIgnore == ops::CrossEntropy::kIgnore,
              "data and loss must agree on positions without a target");

namespace {

// Why this model's step cannot be captured; empty where it can.
std::string why_not_captured(const layers::Decoder& model, const collectives::Group& ranks) {
  if (!ranks.is_alone() || model.ranks().mesh.size() > 1)
    return "the ranks wait for each other in every step";
  if (!is_apart(model.device())) return "there are no graphs on the CPU";
  const auto because = [](std::string_view op) {
    return fmt::format("the kernel of {} needs the CPU in every step (docs/training.md)", op);
  };
  if (!model.ops().at<ops::AdamW>("optimizer").repeats) return because(ops::AdamW::kName);
  if (!model.ops().at<ops::GlobalNorm>("optimizer").repeats) return because(ops::GlobalNorm::kName);
  const std::string_view op = model.asks_host();
  return op.empty() ? std::string() : because(op);
}

}  // namespace

Trainer::Trainer(layers::Decoder& model, optimizers::AdamW& optimizer, const TrainerOptions& options,
                 std::shared_ptr<const Objective> objective, collectives::Group& ranks)
    : model_(model),
      optimizer_(optimizer),
      options_(options),
      objective_(std::move(objective)),
      ranks_(ranks),
      graphs_(model.device(), options.cuda_graph,
              objective_ ? "the objective needs the CPU in every step" : why_not_captured(model, ranks),
              [this](StepData& data) { compute(data); }) {}

// All that a device does in one step. What it depends on stands in `data` and on the device.
void Trainer::compute(StepData& data) {
  data.updates = false;
  model_.parameters().release_gradients();
  // With one micro-batch gradients move into the memory that backward frees; more of them need both at once.
  if (data.batches.size() > 1) model_.parameters().allocate_gradients();
  data.outputs.clear();
  const std::vector<Tensor> counts = global_counts(data);
  for (size_t i = 0; i < data.batches.size(); ++i) {
    const MicroBatch& batch = data.batches[i];
    const bool last = i + 1 == data.batches.size();
    Tape tape(TapeOptions{.rematerialize = options_.checkpointing == Checkpointing::kSelective,
                          .keep_states = options_.keep_states});
    layers::Decoder::Options forward;
    forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
    forward.routers = watch_routers(model_, batch);
    // The hidden states are not kept while backward runs.
    const Var own = loss_of(tape, model_.forward(tape, batch.input, forward), batch, data),
              loss = with_balance(tape, own, forward.routers, counts, data);
    const trace::Span backward("backward");
    if (last) optimizer_.begin_sums(ranks_);
    tape.backward(loss, {},
                  last && !ranks_.is_alone() ? [this] { optimizer_.sum_ready(); } : std::function<void()>());
  }
  const trace::Span update("update");
  if (data.batches.empty()) optimizer_.begin_sums(ranks_);
  model_.settle();
  optimizer_.end_sums();
  data.grad_norm = optimizer_.grad_norm();
  data.updates = true;
  optimizer_.update(data.grad_norm, options_.max_grad_norm);
  if (options_.routers.bias_rate > 0) move_biases(data);
}

Var Trainer::loss_of(Tape& tape, const Var& hidden, const MicroBatch& batch, StepData& data) {
  if (step_loss_) return step_loss_->of(tape, {hidden, batch.targets, batch.documents}, *pending_);
  const auto [loss, nll, z] =
      model_.loss(tape, hidden, batch.targets, {data.scale, static_cast<float>(options_.z_loss)});
  data.outputs.push_back({loss.value, options_.num_sources > 1 ? nll : Tensor(), z, {}, {}});
  return loss;
}

// Of several ranks the hosts add up what all know.
std::vector<Tensor> Trainer::summed_counts(
    const std::vector<std::shared_ptr<layers::RouterTrace>>& passes) const {
  std::vector<Tensor> counts;
  if (ranks_.is_alone()) {
    for (size_t i = 0; i < model_.num_routers(); ++i) {
      const auto told = [&](size_t pass) { return passes[pass]->routers[i].parts[0].counts; };
      counts.push_back(passes.size() == 1 ? told(0) : told(0).clone());
      for (size_t pass = 1; pass < passes.size(); ++pass) primitives::add_counts(counts[i], told(pass));
    }
    return counts;
  }
  PendingLoads loads(model_);
  for (const auto& pass : passes) loads.add(*pass, 0);
  for (const RouterLoad& load : loads.wait(ranks_)) {
    std::vector<int32_t> own(load.counts.begin(), load.counts.end());
    own.push_back(0);
    counts.push_back(Tensor::from(own).on(model_.device()));
  }
  return counts;
}

// Of all tokens of the update: a pass of its own where the update has several micro-batches or ranks. Empty:
// each micro-batch has its own.
std::vector<Tensor> Trainer::global_counts(const StepData& data) const {
  const RouterOptions& options = options_.routers;
  if (model_.num_routers() == 0 || options.balance_factor == 0 || !options.global_balance) return {};
  if (data.batches.size() < 2 && ranks_.is_alone()) return {};
  std::vector<std::shared_ptr<layers::RouterTrace>> passes;
  for (const MicroBatch& batch : data.batches) {
    Tape tape(false);
    layers::Decoder::Options forward;
    forward.routers = watch_routers(model_, batch);
    model_.forward(tape, batch.input, forward);
    passes.push_back(forward.routers);
  }
  return summed_counts(passes);
}

Var Trainer::with_balance(Tape& tape, const Var& loss, const std::shared_ptr<layers::RouterTrace>& routers,
                          const std::vector<Tensor>& counts, StepData& data) const {
  if (routers == nullptr) return loss;
  if (step_loss_) data.outputs.push_back({});  // which tells its loss itself
  StepData::Output& output = data.outputs.back();
  output.routers = routers;
  const double factor = options_.routers.balance_factor;
  if (factor == 0) return loss;
  const Var balance =
      model_.balance_loss(tape, *routers, 0, {static_cast<float>(factor), data.inverse_tokens, counts});
  output.balance = balance.value;
  return layers::add_losses(tape, {loss, balance});
}

// By what all ranks' tokens of the update chose; evaluation and passes that are computed again count nothing.
void Trainer::move_biases(const StepData& data) {
  std::vector<std::shared_ptr<layers::RouterTrace>> passes;
  for (const StepData::Output& output : data.outputs)
    if (output.routers) passes.push_back(output.routers);
  const std::vector<Tensor> counts = summed_counts(passes);
  const auto rate = static_cast<float>(options_.routers.bias_rate);
  for (size_t i = 0; i < counts.size(); ++i)
    if (const layers::BoundWeight* const bias = model_.choice_bias(model_.router_layers()[i]))
      primitives::move_biases(bias->value(), counts[i], rate, data.grad_norm);
}

PendingStep Trainer::begin(const std::vector<data::PackedRow>& rows, double lr) {
  const trace::Span span("step");
  PendingStep pending(rows, options_.num_sources, ranks_);
  if (objective_) {
    step_loss_ = objective_->begin(rows, nullptr, ranks_);
    pending_ = &pending;
  }
  StepData data;
  data.scale.set(pending.scale());
  pending.watch_routers(model_);
  data.inverse_tokens.set(pending.inverse_tokens());
  double flops = 0;
  for (const auto& [begin, end] : cut_micro_batches(model_, rows, options_.micro_batch_tokens)) {
    data.batches.push_back(gather(rows, begin, end, fills_up(model_)));
    const MicroBatch& batch = data.batches.back();
    pending.add_work(batch.tokens, training_flops(model_.config(), batch.documents));
    flops += training_flops(model_.config(), batch.documents);
  }
  optimizer_.set_lr(lr);
  const StepData& done = graphs_.run(std::move(data), flops);
  optimizer_.advance();
  for (size_t i = 0; i < done.outputs.size(); ++i) {
    const StepData::Output& output = done.outputs[i];
    if (output.routers) pending.add_routers(*output.routers, 0, output.balance);
    if (output.loss.defined()) pending.add_loss(output.loss, output.z, output.nll, done.batches[i].documents);
  }
  pending.set_grad_norm(done.grad_norm);
  return pending;
}

EvalResult Trainer::evaluate(const std::vector<data::PackedRow>& rows) const {
  if (objective_) return objective_->evaluate(rows, nullptr, ranks_);
  return training::evaluate(model_, nullptr, rows, options_.micro_batch_tokens, ranks_);
}

}  // namespace temper::training
