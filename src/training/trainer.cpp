#include "training/trainer.h"

#include "base/trace.h"
#include "ops/global_norm/global_norm.h"
#include "training/flops.h"

namespace temper::training {

static_assert(data::kIgnore == ops::CrossEntropy::kIgnore,
              "data and loss must agree on positions without a target");

namespace {

// Why this model's step cannot be captured; empty where it can.
std::string why_not_captured(const layers::Decoder& model, const collectives::Group& ranks) {
  if (!ranks.is_alone()) return "the ranks wait for each other in every step";
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
  for (const MicroBatch& batch : data.batches) {
    Tape tape(TapeOptions{.rematerialize = options_.checkpointing == Checkpointing::kSelective});
    layers::Decoder::Options forward;
    forward.checkpoint_layers = options_.checkpointing == Checkpointing::kFull;
    // The hidden states are not kept while backward runs.
    const Var loss = loss_of(tape, model_.forward(tape, batch.input, forward), batch, data);
    const trace::Span backward("backward");
    tape.backward(loss);
  }
  const trace::Span update("update");
  optimizer_.sum_gradients(ranks_);
  data.grad_norm = optimizer_.grad_norm();
  data.updates = true;
  optimizer_.update(data.grad_norm, options_.max_grad_norm);
}

Var Trainer::loss_of(Tape& tape, const Var& hidden, const MicroBatch& batch, StepData& data) {
  if (step_loss_) return step_loss_->of(tape, {hidden, batch.targets, batch.documents}, *pending_);
  const auto [loss, nll, z] =
      model_.loss(tape, hidden, batch.targets, {data.scale, static_cast<float>(options_.z_loss)});
  data.outputs.push_back({loss.value, options_.num_sources > 1 ? nll : Tensor(), z});
  return loss;
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
  double flops = 0;
  for (const auto& [begin, end] : cut_micro_batches(rows, options_.micro_batch_tokens)) {
    data.batches.push_back(gather(rows, begin, end, fills_up(model_.device())));
    const MicroBatch& batch = data.batches.back();
    pending.add_work(batch.tokens, training_flops(model_.config(), batch.documents));
    flops += training_flops(model_.config(), batch.documents);
  }
  optimizer_.set_lr(lr);
  const StepData& done = graphs_.run(std::move(data), flops);
  optimizer_.advance();
  for (size_t i = 0; i < done.outputs.size(); ++i) {
    const StepData::Output& output = done.outputs[i];
    pending.add_loss(output.loss, output.z, output.nll, done.batches[i].documents);
  }
  pending.set_grad_norm(done.grad_norm);
  return pending;
}

EvalResult Trainer::evaluate(const std::vector<data::PackedRow>& rows) const {
  if (objective_) return objective_->evaluate(rows, nullptr, ranks_);
  return training::evaluate(model_, nullptr, rows, options_.micro_batch_tokens, ranks_);
}

}  // namespace temper::training
